//! Input maps of layers, which vDNN moves: what is used before forward turns to backward and after.

use super::{Algorithms, Chooser, Task, Window, leave_when_copied, return_one_ahead, turn};

/// Maps that move, and when they go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Policy {
    pub(super) maps: Maps,
    /// Whether ops wait for the copy of a map that they have used.
    pub(super) waits: bool,
}

/// Which maps move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Maps {
    None,
    Convolutions,
    All,
}

impl Policy {
    pub(super) const NONE: Policy = Policy { maps: Maps::None, waits: true };
    pub(super) const CONV: Policy = Policy { maps: Maps::Convolutions, waits: true };
    pub(super) const ALL: Policy = Policy { maps: Maps::All, waits: true };

    /// The same without waiting for copies.
    pub(super) const fn without_waiting(self) -> Policy {
        Policy { waits: false, ..self }
    }

    /// The maps that move, and when they are away.
    pub(super) fn windows(self, task: &Task<'_>, chooser: &Chooser<'_>) -> Vec<Window> {
        let (step, turn) = (chooser.step(), turn(task));
        let chosen = step.gaps.iter().filter(|gap| {
            gap.crosses(turn)
                && match self.maps {
                    Maps::None => false,
                    Maps::Convolutions => task.is_map_of_convolution(gap.value, turn),
                    Maps::All => true,
                }
        });
        let mut windows: Vec<Window> = chosen.map(|&gap| Window::beside(gap)).collect();
        if !self.waits {
            leave_when_copied(step, &mut windows);
        }
        return_one_ahead(&mut windows, turn);
        windows
    }
}

/// The fastest algorithms for which there is room beside what is live with `windows` away; those of least scratch memory else.
pub(super) fn fitting(task: &Task<'_>, chooser: &Chooser<'_>, windows: &[Window]) -> Algorithms {
    let mut room: Vec<i64> = chooser.step().live.iter().map(|live| chooser.limit() - live).collect();
    for window in windows {
        let away = window.gone + 1..window.back.min(room.len());
        room[away].iter_mut().for_each(|room| *room += window.gap.size);
    }
    // What the algorithm of now takes is part of what is live.
    Algorithms::within(task, |node| {
        room[node] + task.workspace[node] + chooser.algorithms().more(task, node).0
    })
}
