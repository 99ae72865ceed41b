//! Makes ops repeatable that overwrite a little of what lasts, as batch norm does with its running statistics.
//!
//! Such an op can't run again on its own: the old statistics are gone, and to count a batch twice would be wrong. So
//! the step is rewritten: what is overwritten is copied before (`snapshot`), the op works on a second copy
//! (`scratch`), and the new version is copied back (`commit`). The snapshot stays, since its source is overwritten; the
//! second copy and the op may be repeated from it, and what a repetition leaves in the copy is thrown away. The
//! same bytes come out, and the log is one that the judge can read: all three are ops like any other.

use memfit_ir::{Bytes, Effect, Nanos};

use crate::call::Output;
use crate::trace::{Event, Trace};

/// An op is rewritten if what it overwrites for good is at most this part of what it makes besides.
const SMALL: u64 = 16;

/// What is known of a tensor while the step is rewritten.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Its number in the new trace.
    number: u32,
    /// Bytes of its storage.
    size: Bytes,
    /// Whether its storage can't be computed again.
    lasts: bool,
}

impl Trace {
    /// The same step, with snapshots for ops that overwrite a little of what lasts. `copy` is the time to copy that
    /// many bytes. The result is the trace itself where there are none.
    #[must_use]
    pub fn with_snapshots(&self, copy: impl Fn(Bytes) -> Nanos) -> Trace {
        let mut rewriter = Rewriter {
            known: Vec::new(),
            next: 0,
            from: self,
            to: Trace { at: self.at.clone(), ..Trace::default() },
            copy: &copy,
        };
        for event in &self.events {
            rewriter.event(event);
        }
        let mut to = rewriter.to;
        to.held = self.held.iter().map(|&held| rewriter.known[held as usize].number).collect();
        to
    }
}

struct Rewriter<'a> {
    /// By the number of a tensor in the old trace.
    known: Vec<Known>,
    /// The number of the next tensor of the new trace.
    next: u32,
    from: &'a Trace,
    to: Trace,
    copy: &'a dyn Fn(Bytes) -> Nanos,
}

impl Rewriter<'_> {
    fn event(&mut self, event: &Event) {
        match event {
            Event::Put { size, .. } => {
                self.to.events.push(event.clone());
                self.know(*size, true);
            }
            Event::Share(tensor) => self.to.events.push(Event::Share(self.known[*tensor as usize].number)),
            Event::Release(tensor) => {
                self.to.events.push(Event::Release(self.known[*tensor as usize].number))
            }
            Event::Call { reads, outputs, effect, .. } => {
                let lost = if matches!(effect, Effect::Pure | Effect::Seeded) {
                    self.lost(reads, outputs)
                } else {
                    Vec::new()
                };
                self.call(event, &lost);
            }
        }
    }

    /// Tensor `number` of the new trace is the next one of the old.
    fn know(&mut self, size: Bytes, lasts: bool) {
        self.known.push(Known { number: self.next, size, lasts });
        self.next += 1;
    }

    /// The arguments that the op overwrites for good, if they are few bytes beside what it makes; else none.
    fn lost(&self, reads: &[u32], outputs: &[Output]) -> Vec<usize> {
        let (mut made, mut lost, mut bytes) = (Bytes::ZERO, Vec::new(), Bytes::ZERO);
        for output in outputs {
            match *output {
                Output::Fresh(size) | Output::Takes(size, _) => made += size,
                Output::View(_) => return Vec::new(),
                Output::InPlace(of) => {
                    let known = self.known[reads[of] as usize];
                    // Who reads it twice would see only one of them change.
                    if reads.iter().filter(|&&read| read == reads[of]).count() > 1 {
                        return Vec::new();
                    }
                    if known.lasts {
                        lost.push(of);
                        bytes += known.size;
                    } else {
                        made += known.size;
                    }
                }
            }
        }
        if bytes.0.saturating_mul(SMALL) <= made.0 { lost } else { Vec::new() }
    }

    /// The call of `event`, with snapshots for the arguments `lost`.
    fn call(&mut self, event: &Event, lost: &[usize]) {
        let Event::Call { kind, reads, outputs, time, workspace, effect } = event else { return };
        let mut now: Vec<u32> = reads.iter().map(|&read| self.known[read as usize].number).collect();
        let mut copies = Vec::with_capacity(lost.len());
        for &of in lost {
            let size = self.known[reads[of] as usize].size;
            let snapshot = self.copy("snapshot", vec![now[of]], Output::Fresh(size), size);
            let scratch = self.copy("scratch", vec![snapshot], Output::Fresh(size), size);
            copies.push((of, now[of], snapshot, scratch));
            now[of] = scratch;
        }
        let kind = self.kind(self.from.kinds.get(*kind).map_or("", String::as_str));
        self.to.events.push(Event::Call {
            kind,
            reads: now,
            outputs: outputs.clone(),
            time: *time,
            workspace: *workspace,
            effect: *effect,
        });
        let first = self.next;
        let repeats = matches!(effect, Effect::Pure | Effect::Seeded);
        for output in outputs {
            match *output {
                Output::Fresh(size) | Output::Takes(size, _) => self.know(size, !repeats),
                Output::View(of) => {
                    let Known { size, lasts, .. } = self.known[reads[of] as usize];
                    self.know(size, lasts);
                }
                Output::InPlace(of) => {
                    let Known { size, lasts, .. } = self.known[reads[of] as usize];
                    self.know(size, lasts || !repeats);
                }
            }
        }
        for (of, old, snapshot, scratch) in copies {
            let at = outputs.iter().position(|output| *output == Output::InPlace(of)).unwrap_or(0);
            let slot = self.known.len() - outputs.len() + at;
            let new = first + u32::try_from(at).unwrap_or(0);
            let size = self.known[slot].size;
            self.known[slot].number = self.copy("commit", vec![old, new], Output::InPlace(0), size);
            self.to.events.extend([snapshot, scratch, new].map(Event::Release));
        }
    }

    /// Kinds are numbered in the order of their first use.
    fn kind(&mut self, name: &str) -> usize {
        let kinds = &mut self.to.kinds;
        kinds.iter().position(|known| known == name).unwrap_or_else(|| {
            kinds.push(name.to_owned());
            kinds.len() - 1
        })
    }

    /// An op that copies; what it makes.
    fn copy(&mut self, kind: &str, reads: Vec<u32>, output: Output, size: Bytes) -> u32 {
        let kind = self.kind(kind);
        self.to.events.push(Event::Call {
            kind,
            reads,
            outputs: vec![output],
            time: (self.copy)(size),
            workspace: Bytes::ZERO,
            effect: Effect::Pure,
        });
        self.next += 1;
        self.next - 1
    }
}
