//! The windows of a view, and where they begin.

use types::tiles::Micros;

use crate::events::DAY;

const MINUTE: Micros = 60_000_000;
const HOUR: Micros = 60 * MINUTE;

/// A window, with the length and the hop that docs/reference/definitions.md gives for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub text: &'static str,
    length: Micros,
    hop: Micros,
}

const fn window(text: &'static str, length: Micros, hop: Micros) -> Window {
    Window { text, length, hop }
}

/// In order of length, shortest first.
pub const ALL_WINDOWS: [Window; 8] = [
    window("1h", HOUR, MINUTE),
    window("6h", 6 * HOUR, 5 * MINUTE),
    window("1d", DAY, 5 * MINUTE),
    window("3d", 3 * DAY, HOUR),
    window("7d", 7 * DAY, HOUR),
    window("30d", 30 * DAY, HOUR),
    window("90d", 90 * DAY, DAY),
    window("365d", 365 * DAY, DAY),
];

pub const FOUR_WINDOWS: [Window; 4] = [ALL_WINDOWS[0], ALL_WINDOWS[2], ALL_WINDOWS[4], ALL_WINDOWS[6]];

impl Window {
    /// The length of the tiles at its edge.
    pub fn hop(&self) -> Micros {
        self.hop
    }

    /// The start of the window at time `t`.
    pub fn start(&self, t: Micros) -> Micros {
        (t - self.length).div_euclid(self.hop) * self.hop
    }
}
