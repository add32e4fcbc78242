//! The screen as text, compared exactly with files of the repository, and what keys and samples do to it.

use super::draw::{Looks, draw};
use super::model::{Link, Model, Screen, Sort};
use api::{DiskSample, EventView, Health, LatencyPoint, PoolSample, Sample, Saved, Severity, VolumeSample};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use std::time::{Duration, Instant};
use types::Mode;

fn latency(count: u64, mean_us: f64, p50_us: f64, p99_us: f64) -> LatencyPoint {
    LatencyPoint { count, mean_us, p50_us, p99_us }
}

fn volume(step: f64, mode: Mode, health: Health) -> VolumeSample {
    let busy = [
        ("all", latency(9000, 410.0 + step, 121.0, 5_300.0 + step)),
        ("ram_hit", latency(4000, 9.1, 8.4, 31.0)),
        ("ssd_hit", latency(3500, 130.0, 121.0, 400.0)),
        ("miss", latency(500, 6_100.0, 5_900.0, 22_000.0)),
        ("write_back", latency(1000, 60.0, 52.0, 300.0)),
    ];
    let busy = busy.map(|(name, point)| (name.to_string(), point));
    VolumeSample {
        health,
        problem: None,
        mode,
        pool: "fast".into(),
        size_bytes: 2 << 40,
        reads_s: 8000.0 + step,
        writes_s: 1000.0,
        read_bytes_s: 33e6,
        written_bytes_s: 4.1e6,
        outcomes_s: [("ram_hit", 4000.0), ("ssd_hit", 3500.0), ("miss", 500.0), ("write_back", 1000.0)]
            .map(|(k, v)| (k.to_string(), v))
            .into(),
        hit_ratio: Some(0.9375),
        latency: busy.into(),
        baseline_us: Some(6_050.0),
        dirty_bytes: Some(3 << 30),
        cached_bytes: 40 << 30,
        ram_bytes: 3 << 30,
        destaged_bytes_s: 21e6,
        backing_ios_s: 720.0,
        ssd_written_bytes_s: 9.9e6,
        bypassed_s: [("sequential", 12.0), ("first_touch", 480.0), ("size", 0.0)].map(|(k, v)| (k.to_string(), v)).into(),
        errors_s: 0.0,
        saved: Saved { backing_ios: 123_456_789, backing_bytes: 505 << 30, waiting_s: 777_777.0 },
        durations: Default::default(),
    }
}

fn sample(step: u64) -> Sample {
    let add = step as f64 * 10.0;
    let mut sample = Sample { unix_ms: 1_700_000_000_000 + step * 1000, span_ms: 1000, ..Sample::default() };
    sample.volumes.insert("db".into(), volume(add, Mode::WriteBack, Health::Running));
    let mut quiet = volume(0.0, Mode::WriteThrough, Health::Running);
    (quiet.reads_s, quiet.writes_s, quiet.hit_ratio, quiet.dirty_bytes, quiet.destaged_bytes_s) = (0.0, 0.0, None, Some(0), 0.0);
    (quiet.read_bytes_s, quiet.written_bytes_s) = (0.0, 0.0);
    quiet.latency.clear();
    quiet.outcomes_s.clear();
    quiet.bypassed_s.clear();
    sample.volumes.insert("archive-with-a-name-that-is-long".into(), quiet);
    let mut failed = volume(0.0, Mode::PassThrough, Health::Degraded);
    (failed.hit_ratio, failed.dirty_bytes, failed.cached_bytes, failed.reads_s) = (Some(0.0), Some(0), 0, 150.0);
    sample.volumes.insert("mail".into(), failed);
    let pool = PoolSample {
        health: Health::Running,
        size_bytes: 100 << 30,
        cached_bytes: 80 << 30,
        dirty_bytes: Some(3 << 30),
        ram_used_bytes: 512 << 20,
        index_bytes: 300 << 20,
        ssd_written_bytes_s: 19.8e6,
        admitted_bytes_s: 12e6,
        ssd_written_bytes: 7 << 40,
        write_amplification: Some(1.62),
    };
    sample.pools.insert("fast".into(), pool);
    sample
}

fn model() -> Model {
    let mut model = Model::new("1.2.3");
    (0..90).for_each(|step| model.take_sample(sample(step)));
    let event = |number, severity, object: &str, message: &str| EventView {
        number,
        unix_s: 1_700_000_000 - number * 60,
        severity,
        object: object.into(),
        message: message.into(),
    };
    model.take_event(event(1, Severity::Info, "db", "volume added over /dev/sdb"));
    model.take_event(event(2, Severity::Warning, "mail", "destage of block 7 failed and will be retried"));
    model.take_event(event(3, Severity::Error, "fast", "an I/O to the SSD failed\u{1b}[2J"));
    model
}

fn press(model: &mut Model, keys: &[KeyCode]) {
    keys.iter().for_each(|code| model.press(KeyEvent::new(*code, KeyModifiers::NONE)));
}

fn drawn(model: &Model, width: u16, height: u16, colours: bool, now: Instant) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("it needs nothing");
    terminal.draw(|frame| draw(frame, model, Looks { colours }, now)).expect("it needs nothing");
    terminal.backend().buffer().clone()
}

fn text(model: &Model, width: u16, height: u16) -> String {
    let buffer = drawn(model, width, height, true, Instant::now());
    let line = |y| (0..width).map(|x| buffer[(x, y)].symbol().to_string()).collect::<String>().trim_end().to_string() + "\n";
    (0..height).map(line).collect()
}

fn check(name: &str, model: &Model) {
    for (width, height) in [(80, 24), (200, 60)] {
        crate::snapshot::check(&format!("src/top/snapshots/{name}-{width}x{height}.txt"), &text(model, width, height));
    }
}

#[test]
fn the_list() {
    let mut model = model();
    press(&mut model, &[KeyCode::Char('s'), KeyCode::Down]);
    check("list", &model);
}

#[test]
fn the_detail_of_a_volume() {
    let mut model = model();
    press(&mut model, &[KeyCode::Char('j'), KeyCode::Enter]);
    check("detail", &model);
    press(&mut model, &[KeyCode::Up]);
    check("detail-quiet", &model);
    press(&mut model, &[KeyCode::Esc]);
    assert_eq!(model.screen, Screen::List);
}

#[test]
fn the_help() {
    let mut model = model();
    press(&mut model, &[KeyCode::Char('?')]);
    check("help", &model);
}

#[test]
fn a_daemon_that_goes_away_is_told_in_the_top_line_and_comes_back() {
    let mut model = model();
    model.lost();
    let Link::Lost(since) = model.link else { panic!("{:?}", model.link) };
    model.lost();
    assert_eq!(model.link, Link::Lost(since), "it counts from the first loss");
    let buffer = drawn(&model, 80, 24, true, since + Duration::from_secs(65));
    let top: String = (0..80).map(|x| buffer[(x, 0)].symbol().to_string()).collect();
    assert!(top.ends_with("THE DAEMON IS GONE for 1 min 5 s: reconnecting"), "{top}");
    assert!(text(&model, 80, 24).contains("db"), "the last picture stays");
    model.connected();
    assert!(text(&model, 80, 24).lines().next().is_some_and(|line| line.ends_with("waiting for a sample")));
    model.take_sample(sample(91));
    assert!(text(&model, 80, 24).lines().next().is_some_and(|line| line.ends_with("live")));
}

#[test]
fn a_pause_holds_the_picture() {
    let mut model = model();
    press(&mut model, &[KeyCode::Char('p')]);
    let before = text(&model, 80, 24);
    assert!(before.contains("PAUSED"));
    model.take_sample(Sample::default());
    assert_eq!(text(&model, 80, 24), before);
    press(&mut model, &[KeyCode::Char('p')]);
    model.take_sample(Sample::default());
    assert!(text(&model, 80, 24).contains("no volumes; create one with"));
}

#[test]
fn colours_are_only_where_they_are_wanted() {
    let coloured = |colours| {
        let buffer = drawn(&model(), 80, 24, colours, Instant::now());
        buffer.content().iter().any(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
    };
    assert!(coloured(true) && !coloured(false));
}

#[test]
fn every_order_is_from_the_largest_on_and_turns_round() {
    let mut model = model();
    let names = |model: &Model| model.rows().iter().map(|(name, _)| name.chars().next().expect("not empty")).collect::<String>();
    for (sort, order) in [
        (Sort::Name, "adm"),
        (Sort::Requests, "dma"),
        (Sort::Hits, "dma"),
        (Sort::Tail, "dma"),
        (Sort::Dirty, "dam"),
        (Sort::Destage, "dma"),
        (Sort::Cached, "adm"),
    ] {
        assert_eq!((model.sort, names(&model).as_str()), (sort, order));
        press(&mut model, &[KeyCode::Char('r')]);
        assert_eq!(names(&model), order.chars().rev().collect::<String>(), "{sort:?}");
        press(&mut model, &[KeyCode::Char('s')]);
    }
    assert_eq!((model.sort, model.reversed), (Sort::Name, false), "round once");
}

#[test]
fn disks_beside_the_caches_have_their_lines() {
    let mut sample = sample(1);
    let latency = [("all".to_string(), latency(90, 80.0, 70.0, 250.0))];
    let disk = DiskSample {
        health: Health::Running,
        problem: None,
        pool: "fast".into(),
        size_bytes: 64 << 30,
        reads_s: 1500.0,
        writes_s: 40.0,
        read_bytes_s: 6e6,
        written_bytes_s: 160e3,
        latency: latency.into(),
        errors_s: 0.0,
    };
    (0..6).for_each(|number| drop(sample.disks.insert(format!("d{number}"), disk.clone())));
    let mut model = Model::new("1");
    model.take_sample(sample);
    let shown = text(&model, 80, 24);
    let line = shown.lines().find(|line| line.starts_with("disk d0 running")).expect("it is there");
    assert!(line.contains("64") && line.contains("1.50k/s") && line.ends_with("P99 250µ"), "{line}");
    assert!(shown.contains("disk d3 ") && !shown.contains("disk d4 ") && shown.contains("and 2 disks more"), "{shown}");
}

#[test]
fn a_hundred_volumes_scroll_and_any_size_is_drawn() {
    let mut model = Model::new("1.2.3");
    let mut many = sample(0);
    for number in 0..100 {
        many.volumes.insert(format!("v{number:03}"), volume(f64::from(number), Mode::WriteAround, Health::Starting));
    }
    for number in 0..9 {
        let pool = many.pools["fast"].clone();
        many.pools.insert(format!("p{number}"), pool);
    }
    model.take_sample(many);
    press(&mut model, &[KeyCode::End]);
    assert_eq!(model.selected.as_deref(), Some("v099"));
    assert!(text(&model, 80, 24).contains("\nv099 "), "{}", text(&model, 80, 24));
    press(&mut model, &[KeyCode::PageUp, KeyCode::Down]);
    assert_eq!(model.selected.as_deref(), Some("v090"));
    press(&mut model, &[KeyCode::Home, KeyCode::Up]);
    assert!(text(&model, 80, 24).contains("\narchive"));
    for screen in [Screen::List, Screen::Detail, Screen::Help] {
        model.screen = screen;
        for (width, height) in [(1, 1), (2, 3), (10, 5), (40, 10), (81, 24), (110, 24), (500, 100)] {
            text(&model, width, height);
        }
    }
}

#[test]
fn a_volume_that_goes_leaves_the_selection_to_another() {
    let mut model = model();
    press(&mut model, &[KeyCode::Down, KeyCode::Enter]);
    assert_eq!(model.selected.as_deref(), Some("db"));
    let mut fewer = sample(100);
    fewer.volumes.remove("db");
    model.take_sample(fewer);
    assert_eq!(model.selected.as_deref(), Some("archive-with-a-name-that-is-long"));
    model.take_sample(Sample::default());
    assert_eq!(model.selected, None);
    assert!(text(&model, 80, 24).contains("the volume was removed"));
    press(&mut model, &[KeyCode::Char('q'), KeyCode::Enter]);
    assert_eq!(model.screen, Screen::List);
    press(&mut model, &[KeyCode::Char('q')]);
    assert!(model.over);
}
