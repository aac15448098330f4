//! Encodes layers for subscribers: each view of a layer once, when the first subscriber asks for it. A view that no
//! subscriber asks for is not encoded.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use bytes::Bytes;
use engine::fresh::{Fresh, FreshLayer, ViewVersion};
use types::Result;

use crate::layer;
use crate::message::SectionHead;

/// The encodings of this many layers are kept, because subscribers that keep up request the same layers at about the
/// same time.
const KEPT: usize = 64;

/// The layers that were sent lately. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Encodings(Arc<Mutex<VecDeque<Arc<Encoded>>>>);

#[derive(Debug)]
struct Encoded {
    layer: Weak<FreshLayer>,
    sections: BTreeMap<ViewVersion, OnceLock<Bytes>>,
}

impl Encodings {
    /// Returns the sections of these views, and their concatenated bytes.
    pub(crate) fn sections(&self, fresh: &Fresh, layer: &Arc<FreshLayer>, views: &[ViewVersion]) -> Result<(Vec<SectionHead>, Bytes)> {
        let encoded = self.entry(layer);
        let (mut heads, mut bodies) = (Vec::new(), Vec::new());
        for view in views {
            let (Some(rows), Some(section), Some(stamp)) = (layer.states.get(view), encoded.sections.get(view), fresh.stamp(view)) else {
                continue;
            };
            let body = match section.get() {
                Some(body) => body.clone(),
                None => {
                    let body = layer::encode(rows).map_err(|error| error.with("view", &view.name))?;
                    section.get_or_init(|| body).clone()
                }
            };
            let failures = layer.failures.get(view).map(|failures| (**failures).clone());
            heads.push(SectionHead { view: view.name.clone(), version: view.version, stamp, bytes: body.len(), failures });
            bodies.push(body);
        }
        let body = match bodies.as_slice() {
            [one] => one.clone(),
            all => all.concat().into(),
        };
        Ok((heads, body))
    }

    fn entry(&self, layer: &Arc<FreshLayer>) -> Arc<Encoded> {
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A weak pointer keeps its place: no other layer is there while it is in the list.
        if let Some(known) = recent.iter().rev().find(|known| Weak::as_ptr(&known.layer) == Arc::as_ptr(layer)) {
            return known.clone();
        }
        let sections = layer.states.keys().map(|view| (view.clone(), OnceLock::new())).collect();
        let encoded = Arc::new(Encoded { layer: Arc::downgrade(layer), sections });
        recent.retain(|known| known.layer.strong_count() > 0);
        recent.push_back(encoded.clone());
        if recent.len() > KEPT {
            recent.pop_front();
        }
        encoded
    }
}
