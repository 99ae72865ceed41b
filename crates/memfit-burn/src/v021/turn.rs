//! One thread at a time hands over an op, from when Burn's router reads how many hold its tensors until memfit has the op.
//!
//! The router counts who holds a tensor, and says with an op whether that is the tensor's last; it lowers the count before it hands over the op.
//! Without turns another thread, whose use is the last by then, could end the tensor in between.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard, PoisonError};

static TURN: Mutex<()> = Mutex::new(());

#[derive(Default)]
struct Mine {
    /// How many calls this thread is in, one within the other.
    depth: u32,
    turn: Option<MutexGuard<'static, ()>>,
    /// Ends of tensors that wait for the op at hand, which may read them.
    ends: Vec<Box<dyn FnOnce()>>,
}

thread_local! {
    static MINE: RefCell<Mine> = RefCell::default();
}

/// This thread's turn, until it is dropped.
pub(super) struct Turn {
    /// A thread that ends has no list of its own any more, and hands over no op.
    taken: bool,
    of_thread: PhantomData<*const ()>,
}

/// Waits for this thread's turn; one within another is the same.
pub(super) fn turn() -> Turn {
    let taken = MINE.try_with(|mine| {
        let mut mine = mine.borrow_mut();
        if mine.depth == 0 {
            mine.turn = Some(TURN.lock().unwrap_or_else(PoisonError::into_inner));
        }
        mine.depth += 1;
    });
    Turn { taken: taken.is_ok(), of_thread: PhantomData }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if !self.taken {
            return;
        }
        let next = || {
            MINE.with_borrow_mut(|mine| match mine.depth {
                1 => mine.ends.pop(),
                _ => None,
            })
        };
        while let Some(end) = next() {
            end();
        }
        MINE.with_borrow_mut(|mine| {
            mine.depth -= 1;
            if mine.depth == 0 {
                mine.turn = None;
            }
        });
    }
}

/// Ends a tensor: in a turn of its own, or after the op that this thread hands over.
pub(super) fn end(work: impl FnOnce() + 'static) {
    let in_call = MINE.try_with(|mine| mine.borrow().depth > 0).unwrap_or(false);
    if in_call {
        MINE.with_borrow_mut(|mine| mine.ends.push(Box::new(work)));
    } else {
        let _turn = turn();
        work();
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn ends_wait_for_the_op_at_hand() {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let note = |what: &'static str| {
            let seen = Rc::clone(&seen);
            move || seen.borrow_mut().push(what)
        };
        end(note("alone"));
        {
            let _outer = turn();
            {
                let _inner = turn();
                end(note("after"));
            }
            note("op")();
        }
        assert_eq!(*seen.borrow(), ["alone", "op", "after"]);
    }

    #[test]
    fn no_two_threads_have_a_turn() {
        let inside = Arc::new(AtomicUsize::new(0));
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let inside = Arc::clone(&inside);
                std::thread::spawn(move || {
                    for _ in 0..2000 {
                        let _turn = turn();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                        let _again = turn();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }
}
