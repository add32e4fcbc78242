//! Advice for a pool as a whole: one SSD for all of its volumes.

use super::Manager;
use analysis::advice::Point;
use analysis::joint::{Share, joint, point_at, point_for};
use api::{AdviceAsk, AdviceObject, AdvicePoint, AdviceView, TargetView};
use datapath::figures::Figures;
use insight::LoadNamed;
use insight::advising::{Asked, OBJECTS_MAX, advise, more_of, point, tell_objects, told_now};

/// A volume with less than this part of the reads that a cache can answer does not count.
const COUNTS_PART: f64 = 0.01;

/// A volume's part in it.
struct Member {
    view: AdviceView,
    /// Re-references in a millisecond.
    weight: f64,
    /// What a read takes without any SSD, in microseconds; absent: not known.
    without_us: Option<f64>,
}

impl Manager {
    /// One answer for all volumes of a pool, beside its RAM: seconds of computing for each. None where that
    /// of its volume is the answer.
    pub(super) fn advise_pool(&self, loads: &[LoadNamed], ask: &AdviceAsk, figures: &Figures) -> Option<AdviceView> {
        let pool = ask.name.as_ref().filter(|name| loads.iter().all(|load| load.pool.as_ref() == Some(name)))?;
        let watched: Vec<_> = loads.iter().filter_map(|load| Some((load, self.insight().copy_of(load)?))).collect();
        let weights: Vec<f64> = watched
            .iter()
            .map(|(_, watch)| {
                let load = watch.load(ask.with_backups);
                load.curve().rereferences().max(0.0) / load.window_ms().max(1) as f64
            })
            .collect();
        let all: f64 = weights.iter().sum();
        let mut left_out = Vec::new();
        let mut members = Vec::new();
        let mut whole: Option<Asked> = None;
        for ((load, watch), weight) in watched.iter().zip(weights) {
            if weight < all * COUNTS_PART || all <= 0.0 {
                left_out.push(load.name.clone());
                continue;
            }
            let asked = self.asked_of(load, ask, figures);
            // The RAM is divided among them as it is used.
            let ram_bytes = (asked.ram_bytes as f64 * weight / all) as u64;
            let alone = Asked { ram_bytes, ssd_bytes: None, ..asked.clone() };
            let mut view = advise(load, watch, &alone);
            self.add_objects(load, watch, &mut view);
            members.push(Member { view, weight, without_us: alone.latencies.backing_us });
            whole = Some(asked);
        }
        let whole = whole.filter(|_| watched.len() > 1)?;
        Some(view(pool, &members, &left_out, &whole, ask))
    }
}

fn view(pool: &str, members: &[Member], left_out: &[String], whole: &Asked, ask: &AdviceAsk) -> AdviceView {
    let share = |member: &Member| {
        let curve = member.view.curve.iter().map(as_shares).collect();
        Share { weight: member.weight, curve, without_us: member.without_us }
    };
    let curve = joint(&members.iter().map(share).collect::<Vec<_>>());
    let unknown = members.iter().find(|member| member.view.curve.is_empty());
    let targets: Vec<TargetView> = whole.targets_percent.iter().map(|percent| target(*percent, &curve, unknown)).collect();
    let names: Vec<&str> = members.iter().map(|member| member.view.name.as_str()).collect();
    let mut sentences = vec![format!("One SSD for {}.", names.join(", "))];
    if !left_out.is_empty() {
        sentences.push(format!("Left out, as next to nothing is read of it again: {}.", left_out.join(", ")));
    }
    let now = whole.ssd_bytes.filter(|_| unknown.is_none()).and_then(|bytes| point_at(&curve, bytes as f64));
    let more = now.as_ref().map_or_else(Vec::new, |now| more_of(now, |ssd_bytes| point_at(&curve, ssd_bytes)));
    let now = now.as_ref().map(point);
    if let Some(now) = &now {
        sentences.extend(told_now(now, &more, whole.is_budget));
    }
    sentences.push("Apply the advice of each volume.".into());
    // What a read takes where, as the volumes are read.
    let mean_us = |figure: fn(&AdviceView) -> Option<f64>| {
        let known = members.iter().filter_map(|member| Some((member.weight, figure(&member.view)?)));
        let (weight, sum) = known.fold((0.0, 0.0), |(all, sum), (weight, us)| (all + weight, sum + weight * us));
        (weight > 0.0).then(|| sum / weight)
    };
    let mut told = AdviceView {
        id: 0,
        name: pool.into(),
        pool: None,
        window_ms: members.iter().map(|member| member.view.window_ms).min().unwrap_or(0),
        with_backups: ask.with_backups,
        scanned_bytes: members.iter().map(|member| member.view.scanned_bytes).sum(),
        targets,
        curve: if unknown.is_some() { Vec::new() } else { curve.iter().map(point).collect() },
        now,
        more,
        ram_bytes: whole.ram_bytes,
        stored_share: whole.stored_share(),
        content_factor: whole.content_factor,
        ram_us: mean_us(|view| view.ram_us),
        ssd_us: mean_us(|view| view.ssd_us),
        backing_us: mean_us(|view| view.backing_us),
        objects: objects_of_all(members),
        sentences,
    };
    tell_objects(&mut told);
    told
}

/// The objects of all volumes: an object's part of a volume's hits, by the volume's part of all.
fn objects_of_all(members: &[Member]) -> Vec<AdviceObject> {
    let all: f64 = members.iter().map(|member| member.weight).sum();
    let of_volume = |member: &Member| {
        let (part, volume) = (member.weight / all, member.view.name.clone());
        let of_all = move |percent: f64| (percent * part * 10.0).round() / 10.0;
        let objects = member.view.objects.clone().into_iter().map(move |object| AdviceObject {
            volume: Some(volume.clone()),
            hits_percent: of_all(object.hits_percent),
            reads_percent: of_all(object.reads_percent),
            ..object
        });
        objects.collect::<Vec<_>>()
    };
    let mut objects: Vec<AdviceObject> = members.iter().flat_map(of_volume).collect();
    objects.sort_by(|one, other| other.hits_percent.total_cmp(&one.hits_percent));
    objects.truncate(OBJECTS_MAX);
    objects
}

/// Of the whole; `unknown` is a member that cannot be told yet.
fn target(hits_percent: f64, curve: &[Point], unknown: Option<&Member>) -> TargetView {
    let share = hits_percent / 100.0;
    let size = |figure: fn(&Point) -> f64| point_for(curve, share, figure).map(|point| point.ssd_bytes as u64);
    let none = TargetView {
        hits_percent,
        ssd_bytes: None,
        ssd_bytes_low: None,
        ssd_bytes_high: None,
        read_us: None,
        ssd_written_bytes_per_day: None,
        not_yet: None,
        more_ms: None,
    };
    if let Some(Member { view, .. }) = unknown {
        let missing = view.targets.iter().find(|target| target.not_yet.is_some());
        let why = missing.and_then(|target| target.not_yet.clone()).unwrap_or_else(|| "no cache that was tried reaches it".into());
        let more_ms = missing.and_then(|target| target.more_ms);
        return TargetView { not_yet: Some(format!("{}: {why}", view.name)), more_ms, ..none };
    }
    let Some(needed) = point_for(curve, share, |point| point.hits) else {
        return TargetView { not_yet: Some("no cache that was tried reaches it on all volumes together".into()), ..none };
    };
    // What lies past the largest cache that was tried is not known: at least that much.
    let most = curve.last().map(|point| point.ssd_bytes as u64);
    TargetView {
        ssd_bytes: Some(needed.ssd_bytes as u64),
        ssd_bytes_low: size(|point| point.hits_high),
        ssd_bytes_high: size(|point| point.hits_low).or(most),
        read_us: needed.read_us,
        ssd_written_bytes_per_day: Some(needed.ssd_bytes_written_per_day as u64),
        ..none
    }
}

fn as_shares(point: &AdvicePoint) -> Point {
    let share = |percent: f64| percent / 100.0;
    Point {
        ssd_bytes: point.ssd_bytes as f64,
        hits: share(point.hits_percent),
        hits_low: share(point.hits_percent_low),
        hits_high: share(point.hits_percent_high),
        read_us: point.read_us,
        ssd_bytes_written_per_day: point.ssd_written_bytes_per_day.unwrap_or(0) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn member(name: &str, weight: f64, points: &[(u64, f64)], not_yet: Option<&str>) -> Member {
        let curve = points.iter().map(|(mib, percent)| AdvicePoint {
            ssd_bytes: mib * MIB,
            hits_percent: *percent,
            hits_percent_low: percent - 1.0,
            hits_percent_high: percent + 1.0,
            read_us: Some(100.0 * percent / 100.0 + 8000.0 * (1.0 - percent / 100.0)),
            ssd_written_bytes_per_day: Some(mib * MIB),
        });
        let none = target(90.0, &[], None);
        let view = view(name, &[], &[], &Asked::default(), &AdviceAsk::default());
        let targets = vec![TargetView { not_yet: not_yet.map(String::from), more_ms: Some(60_000), ..none }];
        let object = |name: &str, hits_percent| AdviceObject {
            volume: None,
            id: Some(1),
            name: name.into(),
            kind: "index".into(),
            hits_percent,
            reads_percent: hits_percent,
            ssd_bytes: MIB,
            advice: "cache".into(),
        };
        let objects = vec![object("hot", 80.0), object("warm", 20.0)];
        Member {
            view: AdviceView { curve: curve.collect(), targets, name: name.into(), objects, ..view },
            weight,
            without_us: Some(8000.0),
        }
    }

    fn asked() -> Asked {
        Asked { targets_percent: vec![50.0, 90.0, 99.0], ssd_bytes: Some(300 * MIB), ram_bytes: 64 * MIB, ..Asked::default() }
    }

    #[test]
    fn a_pool_needs_what_its_volumes_need_together() {
        let points = [(50, 50.0), (100, 80.0), (200, 92.0), (400, 96.0)];
        let members = [member("a", 1.0, &points, None), member("b", 1.0, &points, None)];
        let told = view("p", &members, &["c".into()], &asked(), &AdviceAsk::default());
        let sizes: Vec<_> = told.targets.iter().map(|target| target.ssd_bytes.map(|bytes| bytes / MIB)).collect();
        // Twice what one of them needs, and 99 % is out of reach.
        assert_eq!(sizes, [Some(100), Some(366), None]);
        let target = &told.targets[1];
        assert!(target.ssd_bytes_low < target.ssd_bytes && target.ssd_bytes < target.ssd_bytes_high, "{target:?}");
        assert!(target.read_us.is_some_and(|us| (us - 890.0).abs() < 1.0), "{target:?}");
        assert!(target.ssd_written_bytes_per_day.is_some_and(|bytes| bytes / MIB == 366), "{target:?}");
        assert!(told.targets[2].not_yet.as_deref().is_some_and(|why| why.contains("together")));
        let now = told.now.as_ref().expect("it is known");
        assert!((now.hits_percent - 86.0).abs() < 0.11 && told.pool.is_none(), "{now:?}");
        assert_eq!(told.more.len(), 1, "4 GiB, and not 100: {:?}", told.more);
        let (objects, sentences) = (&told.objects, &told.sentences);
        assert_eq!(sentences[0], "4 objects bring 100 % of the hits: a: hot, b: hot, a: warm, b: warm.", "{objects:?}");
        assert!(sentences[1].contains("a, b") && sentences[2].contains(": c."), "{sentences:?}");
        assert!(sentences[4].contains("Another 4 GiB = +10 %"), "{sentences:?}");
    }

    #[test]
    fn while_one_of_them_is_not_known_the_pool_is_not() {
        let members = [member("a", 1.0, &[(50, 95.0)], None), member("b", 1.0, &[], Some("the time watched is too short"))];
        let told = view("p", &members, &[], &asked(), &AdviceAsk::default());
        assert!(told.curve.is_empty() && told.now.is_none());
        for target in &told.targets {
            assert_eq!((target.not_yet.as_deref(), target.more_ms), (Some("b: the time watched is too short"), Some(60_000)));
        }
    }
}
