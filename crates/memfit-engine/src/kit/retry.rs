//! What is done about faults: another try where that may do. What it does is the host's; whether, and in which order, is said here.

use memfit_ir::Bytes;

use crate::call::{Call, Output};
use crate::fault::Fault;

/// Times that what has died is looked for.
const MOST_LEARNT: u32 = 3;

/// A bound for scratch memory is not lowered below this.
const LEAST_SCRATCH: Bytes = Bytes(1 << 12);

/// What a host can do before it tries again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Look for what the program has given up without a word, and [cut the past](crate::Engine::cut_past).
    Look,
    /// Learn what has died on the way; if nothing has, there is no use in another try.
    Learn,
}

/// What has been tried against the faults of one piece of work already.
#[derive(Clone, Copy, Debug, Default)]
pub struct Retries {
    looked: bool,
    learnt: u32,
}

impl Retries {
    /// What to do about `fault`, if anything may help: where there is no room, to look once; where the device failed, which an
    /// operand that has died makes it do, to learn who has died, a few times.
    pub fn remedy(&mut self, fault: &Fault) -> Option<Remedy> {
        match fault {
            Fault::NoRoom(_) if !self.looked => {
                self.looked = true;
                Some(Remedy::Look)
            }
            Fault::Host(_) if self.learnt < MOST_LEARNT => {
                self.learnt += 1;
                Some(Remedy::Learn)
            }
            _ => None,
        }
    }
}

/// There is no room for `call`. A bound for scratch memory that is larger than what is there says little: the call is to be held
/// to what there is, so a smaller one is tried. False if it is no bound, or small.
pub fn less_scratch(call: &mut Call<'_>) -> bool {
    let lowers = call.guessed && call.workspace > LEAST_SCRATCH;
    if lowers {
        call.workspace = Bytes(call.workspace.0 / 4 * 3);
    }
    lowers
}

/// The device's allocator had no memory for `call`, which was held to what there was: it wants `wanted` bytes for its results and
/// for itself, and is to have as many.
///
/// # Errors
///
/// The bytes that are missing, if it may not be made once more, or wants no more than it had.
pub fn more_scratch(call: &mut Call<'_>, wanted: Bytes, restartable: bool) -> Result<(), Bytes> {
    let results: Bytes = call.outputs.iter().map(Output::bytes).sum();
    let twice = Bytes(call.workspace.0.saturating_mul(2));
    let workspace = wanted.saturating_sub(results).max(twice);
    if !restartable || workspace <= call.workspace {
        return Err(workspace.saturating_sub(call.workspace));
    }
    (call.workspace, call.guessed) = (workspace, false);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::NoRoom;
    use crate::host::HostError;

    #[test]
    fn each_remedy_is_tried_so_often_and_no_more() {
        let mut retries = Retries::default();
        let (op, zero) = (String::new(), Bytes::ZERO);
        let no_room = NoRoom { op, asked: zero, holding: Vec::new(), budget: zero, enough: zero };
        let no_room = Fault::NoRoom(Box::new(no_room));
        let failed = Fault::Host(HostError("it is on fire".to_owned()));
        assert_eq!([retries.remedy(&no_room), retries.remedy(&no_room)], [Some(Remedy::Look), None]);
        let learnt: Vec<Option<Remedy>> = (0..4).map(|_| retries.remedy(&failed)).collect();
        assert_eq!(learnt, [Some(Remedy::Learn), Some(Remedy::Learn), Some(Remedy::Learn), None]);
        assert_eq!(Retries::default().remedy(&Fault::OverAllowance), None);
    }

    #[test]
    fn a_bound_for_scratch_memory_goes_down_to_a_page() {
        let mut call = Call { workspace: Bytes(8 << 10), guessed: true, ..Call::default() };
        let mut tried = Vec::new();
        while less_scratch(&mut call) {
            tried.push(call.workspace.0);
        }
        assert_eq!(tried, [6144, 4608, 3456]);
        assert!(!less_scratch(&mut Call { guessed: false, workspace: Bytes(1 << 20), ..call }));
    }

    #[test]
    fn what_an_allocator_refused_is_asked_for() {
        let outputs = [Output::Fresh(Bytes(1000)), Output::InPlace(0)];
        let call = Call { outputs: &outputs, workspace: Bytes(100), guessed: true, ..Call::default() };
        let mut again = call;
        assert_eq!(more_scratch(&mut again, Bytes(1500), true), Ok(()));
        assert_eq!((again.workspace, again.guessed), (Bytes(500), false));
        let mut again = call;
        assert_eq!(more_scratch(&mut again, Bytes(1050), true), Ok(()), "at least twice what it had");
        assert_eq!(again.workspace, Bytes(200));
        assert_eq!(more_scratch(&mut { call }, Bytes(1500), false), Err(Bytes(400)));
        let nothing = Call { workspace: Bytes::ZERO, ..call };
        assert_eq!(more_scratch(&mut { nothing }, Bytes(1000), true), Err(Bytes::ZERO));
    }
}
