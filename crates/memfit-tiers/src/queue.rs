//! A thread that copies, one thing after another: one direction of a link.

use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::time::{Duration, Instant};

use memfit_engine::HostError;

type Job = Box<dyn FnOnce() + Send>;

/// One direction of a link. Its thread starts with the first job, and ends with the queue and its last job.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    jobs: Option<Sender<Job>>,
    /// For what is slower than here: fixed seconds of a job, and bytes per second.
    pace: Option<(f64, f64)>,
}

/// What a job under way will have come to.
#[derive(Debug)]
pub(crate) struct Ticket<T> {
    told: Receiver<Result<T, HostError>>,
}

impl Queue {
    /// One whose jobs take as long as on a link of `latency` seconds and `rate` bytes per second, if that is longer.
    pub(crate) fn paced(latency: f64, rate: f64) -> Queue {
        Queue { jobs: None, pace: Some((latency, rate)) }
    }

    /// Has the thread do `work`, about `size` bytes, after all that came before.
    ///
    /// # Errors
    ///
    /// If the machine starts no thread.
    pub(crate) fn send<T: Send + 'static>(
        &mut self,
        size: usize,
        work: impl FnOnce() -> Result<T, HostError> + Send + 'static,
    ) -> Result<Ticket<T>, HostError> {
        let (tell, told) = sync_channel(1);
        let pace = self.pace.map(|(latency, rate)| {
            Duration::try_from_secs_f64(latency + size as f64 / rate.max(1.0)).unwrap_or_default()
        });
        let job: Job = Box::new(move || {
            let started = Instant::now();
            let outcome = work();
            if let Some(left) = pace.and_then(|pace| pace.checked_sub(started.elapsed())) {
                std::thread::sleep(left);
            }
            // Nobody is there any more to be told when the shelf has gone.
            let _ = tell.send(outcome);
        });
        if self.jobs.is_none() {
            self.jobs = Some(start()?);
        }
        let sent = self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        if sent { Ok(Ticket { told }) } else { Err(gone()) }
    }

    /// In a process that is a copy of another there is no thread: the queue begins anew. What belongs to the other process is
    /// left as it is.
    pub(crate) fn forget(&mut self) {
        std::mem::forget(self.jobs.take());
    }
}

impl<T> Ticket<T> {
    /// That of a job which has been done already.
    pub(crate) fn done(outcome: Result<T, HostError>) -> Ticket<T> {
        let (tell, told) = sync_channel(1);
        let _ = tell.send(outcome); // There is room for one.
        Ticket { told }
    }

    /// Waits for the job.
    ///
    /// # Errors
    ///
    /// As the job, or if its thread has ended before it.
    pub(crate) fn wait(self) -> Result<T, HostError> {
        self.told.recv().map_err(|_| gone())?
    }
}

fn gone() -> HostError {
    HostError("the thread that copies has ended".to_owned())
}

fn start() -> Result<Sender<Job>, HostError> {
    let (jobs, come) = channel::<Job>();
    let thread = std::thread::Builder::new().name("memfit-copies".to_owned());
    let started = thread.spawn(move || come.into_iter().for_each(|job| job()));
    started.map(|_| jobs).map_err(|error| HostError(format!("no thread for copies: {error}")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn jobs_run_in_their_order_beside_their_sender() {
        let mut queue = Queue::default();
        let (go, wait) = channel::<()>();
        let first = queue.send(0, move || wait.recv().map_err(|_| gone())).unwrap();
        let second = queue.send(0, || Ok(2)).unwrap();
        assert!(second.told.try_recv().is_err());
        go.send(()).unwrap();
        first.wait().unwrap();
        assert_eq!(second.wait(), Ok(2));
        let panics = queue.send(0, || -> Result<(), HostError> { panic!("in a job") }).unwrap();
        assert_eq!(panics.wait(), Err(gone()));
        assert!(queue.send(0, || Ok(())).and_then(Ticket::wait).is_err());
    }
}
