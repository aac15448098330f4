//! An actor: code that stops at every step, where the schedule lets it continue, freezes it or kills it.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use catalog::{CatalogState, Commit, Revision};
use types::{Error, ErrorKind, Result};

use crate::sabotage::sabotaged;
use crate::world::{Fault, Sim};

/// An actor's access to the world: its name, and a place to stop.
#[derive(Clone)]
pub struct Ctx {
    pub sim: Sim,
    pub name: Rc<str>,
    kind: Kind,
    parked: Rc<Cell<bool>>,
    step: Rc<Cell<&'static str>>,
}

/// An actor as the schedule sees it.
pub struct Actor {
    pub name: Rc<str>,
    pub kind: Kind,
    work: Pin<Box<dyn Future<Output = ()>>>,
    parked: Rc<Cell<bool>>,
    step: Rc<Cell<&'static str>>,
    /// Frozen until the schedule has made this many steps.
    pub frozen_until: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Worker,
    Reader,
    Runner,
    Collector,
    Alerter,
    Trimmer,
    Replayer,
}

impl Actor {
    pub fn new<W: Future<Output = ()> + 'static>(sim: &Sim, name: &str, kind: Kind, work: impl FnOnce(Ctx) -> W) -> Self {
        let (parked, step) = (Rc::new(Cell::new(false)), Rc::new(Cell::new("begins")));
        let name: Rc<str> = name.into();
        // Each actor has its own handle, as each process has.
        let sim = Sim { world: sim.world.clone(), catalog: sim.catalog.apart() };
        let work = Box::pin(work(Ctx { sim, name: name.clone(), kind, parked: parked.clone(), step: step.clone() }));
        Self { name, kind, work, parked, step, frozen_until: 0 }
    }

    /// The step at which it stopped.
    pub fn step(&self) -> &'static str {
        self.step.get()
    }

    /// Lets it run to its next step; returns true if it ended.
    pub async fn advance(&mut self) -> bool {
        self.parked.set(false);
        poll_fn(|cx| match self.work.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(true),
            Poll::Pending if self.parked.get() => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        })
        .await
    }
}

impl Ctx {
    /// Stops at a step; the schedule decides when and whether the actor continues.
    pub async fn step(&self, what: &'static str) {
        self.step.set(what);
        self.sim.reached(self.kind, what);
        let mut arrived = false;
        poll_fn(|_| {
            if arrived {
                return Poll::Ready(());
            }
            arrived = true;
            self.parked.set(true);
            Poll::Pending
        })
        .await;
        self.sim.trace(&self.name, what);
    }

    pub async fn state(&self) -> Result<Arc<CatalogState>> {
        self.step("reads the catalog").await;
        self.sim.catalog.state().await
    }

    /// Commits as `commit_with_retry` does, on a network that loses requests and replies.
    pub async fn commit(&self, commit: Commit) -> Result<Revision> {
        let unavailable = || Error::unavailable("the catalog did not answer");
        loop {
            self.step("asks for a commit").await;
            if self.sim.fault(Fault::RequestLost, 30) {
                self.sim.trace(&self.name, "the request was lost");
                continue;
            }
            if self.sim.is_disk_full() {
                self.sim.trace(&self.name, "the catalog's disk is full");
                return Err(unavailable());
            }
            let sabotage = self.sim.world.borrow().sabotage;
            let asked = match sabotage {
                Some(sabotage) => sabotaged(commit.clone(), sabotage, &*self.sim.catalog.state().await?),
                None => commit.clone(),
            };
            let outcome = self.sim.catalog.commit(asked).await;
            match &outcome {
                Ok(revision) => self.sim.trace(&self.name, format!("committed as revision {revision}")),
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    self.sim.fired(Fault::CommitRefused);
                    self.sim.trace(&self.name, format!("refused: {error}"));
                }
                Err(error) => self.sim.violated(format!("a commit failed: {error}")),
            }
            if self.sim.fault(Fault::ReplyLost, 30) {
                self.sim.trace(&self.name, "the reply was lost");
                if self.sim.fault(Fault::OutcomeUnknown, 200) {
                    return Err(unavailable());
                }
                continue;
            }
            self.step("has the commit's outcome").await;
            return outcome;
        }
    }

    /// Writes a file, or fails like a storage that does not respond.
    pub async fn put(&self, name: types::files::ObjectName, content: crate::world::Content) -> Result<types::files::FileRecord> {
        self.step("writes a file").await;
        if self.sim.fault(Fault::StoreFailed, 10) || self.sim.is_disk_full() {
            return Err(Error::unavailable("the storage did not answer"));
        }
        self.sim.trace(&self.name, format!("wrote {name}"));
        Ok(self.sim.put(&name, content))
    }
}
