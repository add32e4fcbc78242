//! What `hearth top` knows and what its keys do, without a terminal.

use api::{EventView, Sample, VolumeSample};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;

/// Seconds of a volume that are remembered for the columns of its detail.
pub const REMEMBERED: usize = 300;
/// Events that are remembered.
const EVENTS: usize = 20;

/// What the volumes are sorted by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sort {
    /// Name, from A on; all others from the largest on.
    Name,
    /// Requests a second.
    Requests,
    /// Part of the reads that hit.
    Hits,
    /// 99th percentile of all latencies.
    Tail,
    /// Dirty bytes.
    Dirty,
    /// Bytes destaged a second.
    Destage,
    /// Cached bytes.
    Cached,
}

impl Sort {
    const ALL: [Sort; 7] = [Sort::Name, Sort::Requests, Sort::Hits, Sort::Tail, Sort::Dirty, Sort::Destage, Sort::Cached];

    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Sort::Name => "name",
            Sort::Requests => "IOPS",
            Sort::Hits => "hits",
            Sort::Tail => "p99",
            Sort::Dirty => "dirty",
            Sort::Destage => "destage",
            Sort::Cached => "cached",
        }
    }

    fn next(self) -> Sort {
        let place = Sort::ALL.iter().position(|sort| *sort == self).unwrap_or(0);
        Sort::ALL[(place + 1) % Sort::ALL.len()]
    }
}

/// What is on the screen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Screen {
    /// All volumes.
    List,
    /// The selected one.
    Detail,
    /// What the keys do.
    Help,
}

/// How things stand with the daemon.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// Connected; no sample yet.
    Waiting,
    /// Samples come.
    Live,
    /// It went away then.
    Lost(Instant),
}

/// One remembered second of a volume.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Second {
    /// Requests.
    pub requests_s: f64,
    /// Part of the reads that hit.
    pub hit_ratio: Option<f64>,
    /// 99th percentile, microseconds.
    pub p99_us: Option<f64>,
    /// Dirty bytes.
    pub dirty_bytes: Option<f64>,
}

/// Everything.
#[derive(Debug)]
pub struct Model {
    /// Of the program.
    pub version: String,
    /// The newest sample, or the one at which the screen was paused.
    pub sample: Sample,
    /// By volume, the latest seconds, oldest first.
    pub seconds: BTreeMap<String, VecDeque<Second>>,
    /// The latest events, oldest first.
    pub events: VecDeque<EventView>,
    /// The daemon.
    pub link: Link,
    /// Whether new samples are not shown.
    pub paused: bool,
    /// What is sorted by.
    pub sort: Sort,
    /// The other way round.
    pub reversed: bool,
    /// The selected volume's name.
    pub selected: Option<String>,
    /// What is shown.
    pub screen: Screen,
    /// Whether to end.
    pub over: bool,
}

impl Model {
    /// Before the first sample.
    pub fn new(version: &str) -> Model {
        Model {
            version: version.into(),
            sample: Sample::default(),
            seconds: BTreeMap::new(),
            events: VecDeque::new(),
            link: Link::Waiting,
            paused: false,
            sort: Sort::Name,
            reversed: false,
            selected: None,
            screen: Screen::List,
            over: false,
        }
    }

    /// Takes in a sample.
    pub fn take_sample(&mut self, sample: Sample) {
        self.link = Link::Live;
        self.seconds.retain(|name, _| sample.volumes.contains_key(name));
        for (name, volume) in &sample.volumes {
            let seconds = self.seconds.entry(name.clone()).or_default();
            if seconds.len() == REMEMBERED {
                seconds.pop_front();
            }
            seconds.push_back(Second {
                requests_s: requests(volume),
                hit_ratio: volume.hit_ratio,
                p99_us: p99_us(volume),
                dirty_bytes: volume.dirty_bytes.map(|bytes| bytes as f64),
            });
        }
        if !self.paused {
            self.sample = sample;
            self.keep_selection();
        }
    }

    /// Takes in an event.
    pub fn take_event(&mut self, event: EventView) {
        if self.events.len() == EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// The daemon went away.
    pub fn lost(&mut self) {
        if !matches!(self.link, Link::Lost(_)) {
            self.link = Link::Lost(Instant::now());
        }
    }

    /// It is there again; its events begin anew if it is another one.
    pub fn connected(&mut self) {
        self.link = Link::Waiting;
    }

    /// Volumes in the order in which they are shown.
    pub fn rows(&self) -> Vec<(&str, &VolumeSample)> {
        let mut rows: Vec<(&str, &VolumeSample)> = self.sample.volumes.iter().map(|(name, volume)| (name.as_str(), volume)).collect();
        let largest_first =
            |of: fn(&VolumeSample) -> f64| move |a: &(&str, &VolumeSample), b: &(&str, &VolumeSample)| of(b.1).total_cmp(&of(a.1));
        match self.sort {
            // They come by name.
            Sort::Name => {}
            Sort::Requests => rows.sort_by(largest_first(requests)),
            Sort::Hits => rows.sort_by(largest_first(|v| v.hit_ratio.unwrap_or(-1.0))),
            Sort::Tail => rows.sort_by(largest_first(|v| p99_us(v).unwrap_or(-1.0))),
            Sort::Dirty => rows.sort_by(largest_first(|v| v.dirty_bytes.map_or(-1.0, |bytes| bytes as f64))),
            Sort::Destage => rows.sort_by(largest_first(|v| v.destaged_bytes_s)),
            Sort::Cached => rows.sort_by(largest_first(|v| v.cached_bytes as f64)),
        }
        if self.reversed {
            rows.reverse();
        }
        rows
    }

    /// The selected volume, if it is (still) there.
    pub fn chosen(&self) -> Option<(&str, &VolumeSample)> {
        let name = self.selected.as_ref()?;
        self.sample.volumes.get_key_value(name).map(|(name, volume)| (name.as_str(), volume))
    }

    fn keep_selection(&mut self) {
        if self.chosen().is_none() {
            self.selected = self.rows().first().map(|(name, _)| (*name).to_string());
        }
    }

    /// Does what a key is for.
    pub fn press(&mut self, key: KeyEvent) {
        if key.kind == KeyEventKind::Release {
            return;
        }
        match (key.code, self.screen) {
            (KeyCode::Char('c' | 'd'), _) if key.modifiers.contains(KeyModifiers::CONTROL) => self.over = true,
            (KeyCode::Char('q'), Screen::List) => self.over = true,
            (KeyCode::Char('q' | '?') | KeyCode::Esc | KeyCode::Enter | KeyCode::Backspace, Screen::Help) => self.screen = Screen::List,
            (KeyCode::Char('q') | KeyCode::Esc | KeyCode::Enter | KeyCode::Backspace, Screen::Detail) => self.screen = Screen::List,
            (KeyCode::Char('?' | 'h'), _) => self.screen = Screen::Help,
            (KeyCode::Enter, Screen::List) if self.chosen().is_some() => self.screen = Screen::Detail,
            (KeyCode::Down | KeyCode::Char('j'), _) => self.step(1),
            (KeyCode::Up | KeyCode::Char('k'), _) => self.step(-1),
            (KeyCode::PageDown, _) => self.step(10),
            (KeyCode::PageUp, _) => self.step(-10),
            (KeyCode::Home, _) => self.step(isize::MIN),
            (KeyCode::End, _) => self.step(isize::MAX),
            (KeyCode::Char('s'), _) => (self.sort, self.reversed) = (self.sort.next(), false),
            (KeyCode::Char('r'), _) => self.reversed = !self.reversed,
            (KeyCode::Char('p' | ' '), _) => self.paused = !self.paused,
            _ => {}
        }
    }

    fn step(&mut self, by: isize) {
        let names: Vec<String> = self.rows().iter().map(|(name, _)| (*name).to_string()).collect();
        let place = names.iter().position(|name| Some(name) == self.selected.as_ref()).unwrap_or(0);
        let last = names.len().saturating_sub(1);
        let moved = match by.cmp(&0) {
            Ordering::Less => place.saturating_sub(by.unsigned_abs()),
            _ => place.saturating_add(by.unsigned_abs()).min(last),
        };
        self.selected = names.get(moved).cloned();
    }
}

/// Reads and writes a second.
pub fn requests(volume: &VolumeSample) -> f64 {
    volume.reads_s + volume.writes_s
}

/// Of all requests, microseconds.
pub fn p99_us(volume: &VolumeSample) -> Option<f64> {
    volume.latency.get("all").map(|latency| latency.p99_us)
}

/// Of all requests, microseconds.
pub fn p50_us(volume: &VolumeSample) -> Option<f64> {
    volume.latency.get("all").map(|latency| latency.p50_us)
}
