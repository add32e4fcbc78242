//! TPC-C without any program but the server: for machines where go-tpc is not to be had. Its tables, mix and numbers follow the TPC-C standard (revision
//! 5.11) as far as go-tpc does: no terminals, no keying, no thinking; so its figures stand beside that one's, but are never mixed with them.

mod mysql;
mod numbers;
mod postgres;
mod tables;
mod transactions;
mod wire;

pub use tables::{Scale, prepare};
pub use wire::Target;

use super::Driven;
use super::driven::distribution;
use super::go_tpc::COUNTED;
use super::load::{Beside, Moment, OVERTIME, warmed};
use crate::result::Second;
use crate::stage::Stage;
use crate::trouble::Trouble;
use numbers::Numbers;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use transactions::Terminal;
use wire::{Connection, Failure};

/// How often a load is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How often a transaction is tried that the server sends back because of others.
const TRIES_MAX: u32 = 100;

/// A load.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Load {
    /// The server.
    pub target: Target,
    /// Name of the database in it.
    pub database: String,
    /// As many as were loaded.
    pub warehouses: u32,
    /// Connections, each without any time to think or key.
    pub threads: u32,
    /// As they were loaded.
    pub scale: Scale,
}

/// What all connections of a run have done.
#[derive(Default)]
struct Done {
    /// New orders: when each was finished, in seconds since the begin of the run, and how long it took, in microseconds.
    new_orders: Vec<(f64, f64)>,
    /// Transactions of all kinds.
    transactions: u64,
    /// Sent back because of others and tried again.
    retried: u64,
    /// What ended the run.
    failure: Option<String>,
}

impl Load {
    /// Runs `warm_seconds` that do not count, if any, and `seconds` that do.
    ///
    /// # Errors
    /// If it fails, `beside` fails, or the user wants an end.
    pub fn drive(&self, stage: &Stage, warm_seconds: u64, seconds: u64, beside: &mut Beside<'_>) -> Result<Driven, Trouble> {
        let mut driven = warmed(warm_seconds, seconds, beside, &mut |seconds, began, beside| self.run(stage, seconds, began, beside))?;
        driven.notes.insert(0, "by hearth's own TPC-C load, not go-tpc".into());
        Ok(driven)
    }

    fn run(&self, stage: &Stage, seconds: u64, whole_began: Instant, beside: &mut Beside<'_>) -> Result<Driven, Trouble> {
        stage.say(format!(
            "# hearth's own TPC-C load: {} warehouses, {} connections, {seconds} s, database {}",
            self.warehouses, self.threads, self.database
        ));
        let mut connections = Vec::new();
        for _ in 0..self.threads {
            connections.push(Connection::open(&self.target, &self.database)?);
        }
        let closers: Vec<_> = connections.iter().map(Connection::closer).collect::<Result<_, _>>()?;
        let (done, over) = (Mutex::new(Done::default()), AtomicBool::new(false));
        // The same numbers in each leg, but others in what is measured than in its warm-up, which takes a second at least: it would be a replay.
        let part = u64::from(whole_began.elapsed() >= Duration::from_secs(1)) << 32;
        let began = Instant::now();
        let time = Duration::from_secs(seconds);
        let watched = std::thread::scope(|scope| {
            let workers: Vec<_> = connections
                .into_iter()
                .enumerate()
                .map(|(number, connection)| {
                    let (done, over) = (&done, &over);
                    scope.spawn(move || self.work(part | number as u64, connection, began, time, done, over))
                })
                .collect();
            let watched = loop {
                if workers.iter().all(std::thread::ScopedJoinHandle::is_finished) {
                    break Ok(true);
                }
                if began.elapsed() > time + OVERTIME {
                    break Ok(false);
                }
                if let Err(trouble) = stage.rest(LOOK).and_then(|()| beside(Moment::At(whole_began.elapsed().as_secs_f64()))) {
                    break Err(trouble);
                }
            };
            over.store(true, Ordering::Relaxed);
            // Whoever waits for an answer gets an error now.
            closers.iter().for_each(wire::Closer::close);
            watched
        });
        let whole = watched?;
        let done = done.into_inner().expect("nobody panics with it");
        match done.failure {
            Some(failure) => Err(Trouble::Failed(format!("TPC-C: {failure}"))),
            None => Ok(driven(done, seconds, began.elapsed().as_secs_f64(), whole)),
        }
    }

    /// One connection: transactions one after the other, each with a warehouse of its own choice.
    fn work(&self, seed: u64, connection: Connection, began: Instant, time: Duration, done: &Mutex<Done>, over: &AtomicBool) {
        let mut terminal = Terminal::new(connection, Numbers::new(seed, self.scale), self.warehouses);
        while began.elapsed() < time && !over.load(Ordering::Relaxed) {
            let kind = terminal.deal();
            let started = Instant::now();
            let mut tries = 1;
            let failure = loop {
                match terminal.perform(kind) {
                    Ok(()) => break None,
                    Err(Failure::Retry(_)) if tries < TRIES_MAX && !over.load(Ordering::Relaxed) => tries += 1,
                    Err(Failure::Retry(text) | Failure::Final(text)) => break Some(text),
                }
            };
            let Ok(mut done) = done.lock() else { return };
            if let Some(failure) = failure {
                // Once it is over connections are closed under those that wait.
                if !over.swap(true, Ordering::Relaxed) {
                    done.failure = Some(failure);
                }
                return;
            }
            done.transactions += 1;
            done.retried += u64::from(tries - 1);
            if kind == transactions::Kind::NewOrder {
                done.new_orders.push((began.elapsed().as_secs_f64(), started.elapsed().as_secs_f64() * 1e6));
            }
        }
    }
}

fn driven(done: Done, seconds: u64, took_s: f64, whole: bool) -> Driven {
    let mut series: Vec<Second> = (1..=seconds).map(|at| Second { at_s: at as f64, rate: 0.0, mean_us: None, hit_ratio: None }).collect();
    let mut sums_us = vec![0.0; series.len()];
    for (at_s, us) in &done.new_orders {
        let at = *at_s as usize;
        if let Some(second) = series.get_mut(at) {
            second.rate += 1.0;
            sums_us[at] += us;
        }
    }
    for (second, sum_us) in series.iter_mut().zip(sums_us) {
        second.mean_us = (second.rate > 0.0).then(|| sum_us / second.rate);
    }
    let count = done.new_orders.len() as f64;
    let latency = distribution(COUNTED, done.new_orders.into_iter().map(|(_, us)| (us, 1)).collect());
    let mut notes = Vec::new();
    if done.retried > 0 {
        notes.push(format!("{} of {} transactions conflicted with others and were repeated", done.retried, done.transactions));
    }
    if !whole {
        notes.push(format!("transactions did not end within {} s after the end of the run and were aborted", OVERTIME.as_secs()));
    }
    // Transactions under way when the time was over are counted, and so is their time.
    let rate = count / took_s.max(seconds as f64);
    Driven { series, rate, mean_us: latency.as_ref().map(|latency| latency.mean_us), latency, counted: COUNTED, notes, ..Driven::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_orders_are_told_second_by_second() {
        let done =
            Done { new_orders: vec![(0.5, 100.0), (0.9, 300.0), (2.1, 50.0), (3.2, 1.0)], transactions: 9, retried: 2, failure: None };
        let found = driven(done, 3, 3.2, true);
        let told: Vec<_> = found.series.iter().map(|second| (second.at_s, second.rate, second.mean_us)).collect();
        assert_eq!(told, [(1.0, 2.0, Some(200.0)), (2.0, 0.0, None), (3.0, 1.0, Some(50.0))]);
        assert_eq!(found.rate, 4.0 / 3.2);
        assert!(found.notes[0].starts_with("2 of 9"), "{:?}", found.notes);
    }
}
