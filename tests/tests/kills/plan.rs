//! Plans which process gets which fault: a life of a process is its role and its fault, chosen by a seed.

use std::collections::BTreeSet;
use std::time::Duration;

use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::{IndexedRandom, IteratorRandom};
use types::failpoint::{ALERTS, APPEND, BATCH, COLLECTOR, COMPACTION, FULL_RUN, INGEST, SERVING, SPEED};

/// The role of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    Speed,
    Scheduler,
    Serve,
    Up,
    Batch,
    Ingest,
}

/// The fault of a process.
#[derive(Debug, Clone)]
pub enum Fault {
    /// At a named step, after it was passed `skip` times.
    At {
        step: &'static str,
        skip: u32,
        action: Action,
    },
    KillAfter(Duration),
    /// SIGSTOP. A process that continues later is a zombie.
    StopAfter(Duration),
    /// SIGTERM: an orderly shutdown, in which partitions are released.
    TerminateAfter(Duration),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Action {
    Kill,
    Stop,
    /// The step fails; after a commit this is a lost reply.
    Unavailable,
    Delay,
}

impl Role {
    pub const ALL: [Role; 6] = [Role::Speed, Role::Scheduler, Role::Serve, Role::Up, Role::Batch, Role::Ingest];

    /// How many processes of this role may live at once: two workers share the partitions.
    pub fn at_most(self) -> usize {
        if self == Role::Speed { 2 } else { 1 }
    }

    fn weight(self) -> u32 {
        match self {
            Role::Speed => 6,
            Role::Batch => 3,
            Role::Serve | Role::Up | Role::Scheduler => 2,
            Role::Ingest => 1,
        }
    }

    /// The steps that a process of this role passes.
    pub fn steps(self, is_kafka: bool) -> Vec<&'static str> {
        let append: &[&str] = if is_kafka { &[] } else { &APPEND };
        let parts: Vec<&[&'static str]> = match self {
            Role::Speed => vec![&SPEED, &ALERTS],
            Role::Scheduler => vec![&BATCH, &COLLECTOR, &COMPACTION],
            Role::Serve => vec![&SERVING],
            Role::Up => vec![&SPEED, &ALERTS, &BATCH, &COLLECTOR, &COMPACTION, &SERVING],
            Role::Batch => vec![&BATCH, &FULL_RUN],
            Role::Ingest => vec![&INGEST, append],
        };
        parts.concat()
    }

    pub fn arguments(self) -> &'static str {
        match self {
            Role::Speed => "speed",
            Role::Scheduler => "scheduler",
            Role::Serve => "serve",
            Role::Up => "up",
            Role::Batch => "batch",
            Role::Ingest => "ingest",
        }
    }
}

/// All steps that exist on this engine.
pub fn all_steps(is_kafka: bool) -> BTreeSet<&'static str> {
    Role::ALL.iter().flat_map(|role| role.steps(is_kafka)).collect()
}

/// Chooses the next life. `missing` are the steps at which nothing was killed yet: they take precedence 60% of the
/// time.
pub fn choose(
    random: &mut StdRng,
    free: &[Role],
    missing: &BTreeSet<&'static str>,
    zombies: usize,
    is_kafka: bool,
) -> Option<(Role, Fault)> {
    let wanted = missing.iter().copied().filter(|step| free.iter().any(|role| role.steps(is_kafka).contains(step)));
    if let Some(step) = wanted.choose(random)
        && random.random_bool(0.6)
    {
        let role = free.iter().copied().filter(|role| role.steps(is_kafka).contains(&step)).choose(random)?;
        return Some((role, Fault::At { step, skip: skip(random, step), action: Action::Kill }));
    }
    let role = *free.choose_weighted(random, |role| role.weight()).ok()?;
    Some((role, fault(random, role, zombies, is_kafka)))
}

/// How long a process lives that creates work for the one that is to be killed.
const HELPER_LIFE: Duration = Duration::from_secs(60);

/// Chooses the next life where only `step` is wanted: the process to be killed there, unless one is tried already; then
/// a process that creates work for it, of a role that no process has.
pub fn focused(step: &'static str, is_tried: bool, is_free: impl Fn(Role) -> bool, is_kafka: bool) -> Option<(Role, Fault)> {
    let role = Role::ALL.into_iter().find(|role| role.steps(is_kafka).contains(&step))?;
    if !is_tried {
        return Some((role, Fault::At { step, skip: 0, action: Action::Kill }));
    }
    // What a worker does waits for no other process.
    let helpers: &[Role] = if role == Role::Speed { &[] } else { &[Role::Speed, Role::Batch] };
    let helper = helpers.iter().copied().find(|helper| *helper != role && is_free(*helper))?;
    Some((helper, Fault::KillAfter(HELPER_LIFE)))
}

fn fault(random: &mut StdRng, role: Role, zombies: usize, is_kafka: bool) -> Fault {
    let slow = if is_kafka && matches!(role, Role::Speed | Role::Up) { 6 } else { 1 };
    let after = Duration::from_millis(random.random_range(150..1_200) * slow);
    let may_stop = zombies < 2;
    match random.random_range(0..100) {
        0..18 => Fault::KillAfter(after),
        18..24 if may_stop => Fault::StopAfter(after),
        24..32 if !matches!(role, Role::Batch | Role::Ingest) => Fault::TerminateAfter(after),
        _ => {
            let steps = role.steps(is_kafka);
            let step = steps.choose(random).copied().unwrap_or("speed.assign");
            Fault::At { step, skip: skip(random, step), action: action(random, step, may_stop) }
        }
    }
}

fn action(random: &mut StdRng, step: &str, may_stop: bool) -> Action {
    match random.random_range(0..100) {
        // If a process is stopped while it holds the write lock of a SQLite file, all others wait for it: that is not a
        // zombie.
        0..12 if may_stop && step != "append.before_commit" => Action::Stop,
        // A lease whose holder fails after taking it blocks others until it expires, so this step never fails.
        12..24 if step != "run.leased" => Action::Unavailable,
        24..32 => Action::Delay,
        _ => Action::Kill,
    }
}

/// How often the step is passed before the fault. Frequent steps are not always met the first time.
fn skip(random: &mut StdRng, step: &str) -> u32 {
    let most = match step {
        "speed.micro_batch_closed" => 8,
        "serving.loaded" => 4,
        step if step.starts_with("checkpoint.") => 3,
        _ => 0,
    };
    random.random_range(0..=most)
}

impl Fault {
    /// Whether it strikes at this step.
    pub fn is_at(&self, wanted: &str) -> bool {
        matches!(self, Fault::At { step, .. } if *step == wanted)
    }

    /// The value of FAILPOINTS for this fault.
    pub fn failpoints(&self) -> String {
        let Fault::At { step, skip, action } = self else { return String::new() };
        let action = match action {
            Action::Kill => "kill",
            Action::Stop => "stop",
            Action::Unavailable => "unavailable",
            Action::Delay => "delay:300",
        };
        let skipped = if *skip > 0 { format!("{skip}*off->") } else { String::new() };
        format!("{step}={skipped}1*return({action})")
    }
}
