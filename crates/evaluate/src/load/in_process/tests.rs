//! Loads in the real data path, over files.

use super::*;
use crate::load::{Content, Length, Pace, fill, unwatched};
use crate::pattern::{Pattern, Places};

const BYTES: u64 = 64 << 20;

fn load(reads_percent: u32, places: Places, requests: u64) -> Load {
    Load {
        pattern: Pattern { block_bytes: 16 << 10, space_bytes: BYTES, reads_percent, places },
        pace: Pace::Closed { depth: 16 },
        length: Length::requests(requests),
        content: Content::Compressible { percent: 40 },
        seed: 11,
        verify: true,
    }
}

/// An image full of data, as a backing device; `None` if the file system has no direct I/O.
fn backing(place: &Path) -> Option<Backing> {
    let image = place.join("image");
    match fill::fill(&image, BYTES, Content::Compressible { percent: 40 }, 11, &AtomicBool::new(false), &mut |_| {}) {
        Err(Trouble::Failed(why)) if why.contains("direct") => None,
        result => {
            result.expect("the image is filled");
            Some(Backing::Device(image))
        }
    }
}

fn cache(place: &Path, mode: Mode) -> Cache {
    Cache { ssd: place.join("ssd").display().to_string(), bytes: Some(512 << 20), ram_bytes: 8 << 20, mode }
}

#[test]
fn a_mix_is_played_through_the_cache_and_every_read_is_right() {
    let place = tempfile::tempdir().expect("a directory");
    let Some(backing) = backing(place.path()) else { return };
    let cache = cache(place.path(), Mode::WriteBack);
    let go_on = AtomicBool::new(false);
    let served = InProcess::open(place.path(), &backing, Some(&cache)).expect("it opens");
    let zones = Places::Zones(vec![(80, 10), (20, 90)]);
    let loaded = served.run(&load(70, zones, 4000), true, &go_on, &mut unwatched).expect("it runs");
    assert_eq!(loaded.reads.count + loaded.writes.count, 4000);
    assert!((2600..3000).contains(&loaded.reads.count), "{}", loaded.reads.count);
    let figures = served.figures();
    assert_eq!(figures.host_read_bytes, loaded.reads.bytes);
    assert_eq!(figures.host_written_bytes, loaded.writes.bytes);
    assert!(figures.hits_ram + figures.hits_ssd > 500, "{figures:?}");
    served.close().expect("all goes home");
    assert!(!Path::new(&cache.ssd).exists(), "the file that was made is gone");
    // Without the cache nothing is missing: what was written is not the fill any more, what was not is.
    let bare = InProcess::open(place.path(), &backing, None).expect("it opens");
    let wrong = bare.run(&load(100, Places::Uniform, 2000), true, &go_on, &mut unwatched).expect_err("some were written");
    assert!(wrong.to_string().contains("wrong data"), "{wrong}");
    let unverified = Load { verify: false, ..load(100, Places::Sequential, 500) };
    assert_eq!(bare.run(&unverified, false, &go_on, &mut unwatched).expect("it runs").reads.count, 500);
    bare.close().expect("it closes");
}

#[test]
fn a_hot_area_is_served_from_ram_and_a_load_may_be_ended() {
    let place = tempfile::tempdir().expect("a directory");
    let Some(backing) = backing(place.path()) else { return };
    let served = InProcess::open(place.path(), &backing, Some(&cache(place.path(), Mode::WriteThrough))).expect("it opens");
    let go_on = AtomicBool::new(false);
    served.warm(0..1 << 20, &go_on).expect("it is read");
    let before = served.figures();
    let hot = Places::HitArea { area_bytes: 1 << 20, reads_percent: 100, writes_percent: 0 };
    served.run(&load(100, hot.clone(), 5000), true, &go_on, &mut unwatched).expect("it runs");
    let since = served.figures().since(&before);
    assert_eq!((since.hits_ram, since.misses), (5000, 0));

    let endless = Load { length: Length::seconds(3600.0), ..load(100, hot.clone(), 0) };
    let mut seconds = Vec::new();
    let ended = served.run(&endless, true, &go_on, &mut |second| {
        seconds.push(*second);
        std::ops::ControlFlow::Break(())
    });
    let ended = ended.expect("it was ended, not stopped");
    assert!(ended.reads.count > 0 && !seconds.is_empty() && ended.wall_s < 60.0, "{ended:?}");
    assert_eq!(served.run(&endless, true, &AtomicBool::new(true), &mut unwatched), Err(Trouble::Stopped));
    let too_large = load(100, Places::Uniform, 1);
    let too_large = Load { pattern: Pattern { space_bytes: BYTES * 2, ..too_large.pattern.clone() }, ..too_large };
    assert!(matches!(served.run(&too_large, true, &go_on, &mut unwatched), Err(Trouble::Failed(_))));
    // After all that it still serves.
    assert_eq!(served.run(&load(100, hot, 100), true, &go_on, &mut unwatched).expect("it runs").reads.count, 100);
    served.close().expect("it closes");
}

#[test]
fn an_open_loop_has_the_rate_that_was_asked_for() {
    let place = tempfile::tempdir().expect("a directory");
    let Some(backing) = backing(place.path()) else { return };
    let served = InProcess::open(place.path(), &backing, None).expect("it opens");
    let pace = Pace::Open { per_s: 500.0, random: true, depth_max: 64 };
    let open = Load { pace, length: Length { time: Some(Duration::from_secs(2)), requests: None }, ..load(50, Places::Uniform, 0) };
    let loaded = served.run(&open, true, &AtomicBool::new(false), &mut unwatched).expect("it runs");
    let made = loaded.reads.count + loaded.writes.count + loaded.unanswered;
    // Poisson: 1000 ± 32; five times that.
    assert!((840..=1160).contains(&made), "{made}");
    served.close().expect("it closes");
}
