//! One SSD for several loads: what it brings to all of them together.
//!
//! Each load's curve is made concave and cut into its straight pieces; the pieces of all loads, those
//! that bring most for a byte first, make the curve of the whole. One cache with one order of eviction
//! divides its room nearly so by itself: within 0.2 % on the recorded loads of a database's objects
//! (the best split by marginal gain against one LRU).

use crate::advice::Point;

/// A load: how often blocks are used again in it, in any unit that all loads share, and its curve.
#[derive(Clone, Debug)]
pub struct Share {
    /// Re-references in a given time.
    pub weight: f64,
    /// Hits by SSD, ascending.
    pub curve: Vec<Point>,
    /// What a read takes without any SSD, in microseconds; `None`: not known.
    pub without_us: Option<f64>,
}

/// A straight piece of a concave curve.
struct Piece {
    of: usize,
    ssd_bytes: f64,
    hits: f64,
    /// Half of the band at its end.
    half: f64,
    /// What a read of its load takes then, and what is written in a day.
    read_us: Option<f64>,
    written_per_day: f64,
}

/// The curve of the whole, from no SSD at all; empty if no load has any. Bands of different loads are
/// taken to be independent of each other, and reads to be as frequent as re-references.
#[must_use]
pub fn joint(shares: &[Share]) -> Vec<Point> {
    let all: f64 = shares.iter().map(|share| share.weight.max(0.0)).sum();
    if all <= 0.0 {
        return Vec::new();
    }
    let weight = |of: usize| shares[of].weight.max(0.0) / all;
    let mut pieces: Vec<Piece> = Vec::new();
    for (of, share) in shares.iter().enumerate() {
        let mut before = (0.0, 0.0);
        for point in hull(&share.curve) {
            let half = (point.hits_high - point.hits_low).max(0.0) / 2.0 * weight(of);
            pieces.push(Piece {
                of,
                ssd_bytes: point.ssd_bytes - before.0,
                hits: (point.hits - before.1) * weight(of),
                half,
                read_us: point.read_us,
                written_per_day: point.ssd_bytes_written_per_day,
            });
            before = (point.ssd_bytes, point.hits);
        }
    }
    if pieces.is_empty() {
        return Vec::new();
    }
    let gain = |piece: &Piece| piece.hits / piece.ssd_bytes;
    pieces.sort_by(|one, other| gain(other).total_cmp(&gain(one)));
    // Of each load, how it is at the size that it has so far.
    let mut halves = vec![0.0_f64; shares.len()];
    let mut reads_us: Vec<Option<f64>> = shares.iter().map(|share| share.without_us).collect();
    let mut written = vec![0.0_f64; shares.len()];
    let mean_us = |reads_us: &[Option<f64>]| reads_us.iter().enumerate().map(|(of, us)| Some(weight(of) * (*us)?)).sum::<Option<f64>>();
    let mut point = Point { read_us: mean_us(&reads_us), ..Point::default() };
    let mut curve = vec![point];
    for piece in pieces {
        (halves[piece.of], reads_us[piece.of], written[piece.of]) = (piece.half, piece.read_us, piece.written_per_day);
        let half = halves.iter().map(|half| half * half).sum::<f64>().sqrt();
        let hits = point.hits + piece.hits;
        point = Point {
            ssd_bytes: point.ssd_bytes + piece.ssd_bytes,
            hits,
            hits_low: (hits - half).max(0.0),
            hits_high: (hits + half).min(1.0),
            read_us: mean_us(&reads_us),
            ssd_bytes_written_per_day: written.iter().sum(),
        };
        curve.push(point);
    }
    curve
}

/// The point of a curve from no SSD at all that brings a share of hits, by one of a point's three
/// figures; `None` where the curve does not reach it. Between two points it is a straight line.
pub fn point_for(curve: &[Point], share: f64, figure: fn(&Point) -> f64) -> Option<Point> {
    let at = curve.iter().position(|point| figure(point) >= share)?;
    let Some(before) = at.checked_sub(1).map(|before| &curve[before]) else { return Some(curve[at]) };
    let (from, to) = (figure(before), figure(&curve[at]));
    let part = if to > from { (share - from) / (to - from) } else { 1.0 };
    Some(before.towards(&curve[at], part.clamp(0.0, 1.0)))
}

/// The point of a curve that a size brings; the last one's hits for what is larger.
#[must_use]
pub fn point_at(curve: &[Point], ssd_bytes: f64) -> Option<Point> {
    let Some(at) = curve.iter().position(|point| point.ssd_bytes >= ssd_bytes) else {
        return curve.last().map(|last| Point { ssd_bytes, ..*last });
    };
    let Some(before) = at.checked_sub(1).map(|before| &curve[before]) else { return Some(curve[at]) };
    let part = (ssd_bytes - before.ssd_bytes) / (curve[at].ssd_bytes - before.ssd_bytes);
    Some(before.towards(&curve[at], part))
}

/// The points of a curve that lie on its upper hull from the origin, with rising sizes and hits.
fn hull(curve: &[Point]) -> Vec<Point> {
    let mut hull: Vec<Point> = Vec::new();
    let slope = |from: Option<&Point>, to: &Point| {
        let (size, hits) = from.map_or((0.0, 0.0), |from| (from.ssd_bytes, from.hits));
        (to.hits - hits) / (to.ssd_bytes - size)
    };
    for point in curve {
        let least = hull.last().map_or((0.0, 0.0), |last| (last.ssd_bytes, last.hits));
        if point.ssd_bytes <= least.0 || point.hits <= least.1 {
            continue;
        }
        while let Some(last) = hull.last() {
            let before = hull.len().checked_sub(2).map(|at| &hull[at]);
            if slope(before, last) >= slope(Some(last), point) {
                break;
            }
            hull.pop();
        }
        hull.push(*point);
    }
    hull
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hits of a cache of `size` where reuse falls off exponentially with a scale.
    fn curve(scale: f64) -> Vec<Point> {
        let point = |step: i32| {
            let ssd_bytes = f64::from(step) * 10.0;
            let hits = 1.0 - (-ssd_bytes / scale).exp();
            Point { ssd_bytes, hits, hits_low: hits - 0.02, hits_high: hits + 0.02, ..Point::default() }
        };
        (1..=200).map(point).collect()
    }

    fn share(weight: f64, curve: &[Point]) -> Share {
        Share { weight, curve: curve.to_vec(), without_us: None }
    }

    fn hits_at(curve: &[Point], ssd_bytes: f64) -> f64 {
        let at = curve.iter().rposition(|point| point.ssd_bytes <= ssd_bytes);
        at.map_or(0.0, |at| curve[at].hits)
    }

    #[test]
    fn equal_loads_need_twice_as_much_together() {
        let one = curve(100.0);
        let both = joint(&[share(3.0, &one), share(3.0, &one)]);
        let alone = point_for(&one, 0.9, |point| point.hits).expect("reached").ssd_bytes;
        let together = point_for(&both, 0.9, |point| point.hits).expect("reached").ssd_bytes;
        assert!((together / alone - 2.0).abs() < 0.1, "{alone} {together}");
        // Two independent halves of one band.
        let last = both.last().expect("points");
        let half = (last.hits_high - last.hits_low) / 2.0;
        assert!(half < 0.02, "{half}");
    }

    #[test]
    fn no_split_of_the_room_brings_more() {
        let (busy, idle) = (curve(300.0), curve(150.0));
        let whole = joint(&[share(9.0, &busy), share(1.0, &idle)]);
        for ssd_bytes in [100.0, 300.0, 700.0, 1500.0] {
            let best = (0..=150).map(|part| f64::from(part) * 10.0).filter(|part| *part <= ssd_bytes);
            let best = best.map(|part| 0.9 * hits_at(&busy, part) + 0.1 * hits_at(&idle, ssd_bytes - part)).fold(0.0, f64::max);
            let told = hits_at(&whole, ssd_bytes);
            assert!((told - best).abs() < 0.01, "{ssd_bytes}: {told} {best}");
        }
        assert!(whole.windows(2).all(|pair| pair[0].ssd_bytes < pair[1].ssd_bytes && pair[0].hits <= pair[1].hits));
    }

    #[test]
    fn what_is_no_curve_is_passed_over() {
        let point = |ssd_bytes, hits| Point { ssd_bytes, hits, hits_low: hits, hits_high: hits, ..Point::default() };
        assert!(joint(&[]).is_empty() && joint(&[share(0.0, &curve(10.0))]).is_empty());
        // A dent, a step back and twice the same size.
        let odd = vec![point(10.0, 0.1), point(20.0, 0.6), point(20.0, 0.5), point(30.0, 0.55), point(40.0, 0.9)];
        let told = joint(&[share(1.0, &odd)]);
        let sizes: Vec<f64> = told.iter().map(|point| point.ssd_bytes).collect();
        assert_eq!(sizes, [0.0, 20.0, 40.0]);
        assert_eq!(point_for(&told, 0.95, |point| point.hits), None);
        assert_eq!(point_for(&told, 0.3, |point| point.hits).map(|point| point.ssd_bytes), Some(10.0));
        assert_eq!(point_at(&told, 10.0).map(|point| point.hits), Some(0.3));
        assert_eq!(point_at(&told, 1000.0).map(|point| (point.ssd_bytes, point.hits)), Some((1000.0, 0.9)));
    }

    #[test]
    fn what_reads_take_and_what_is_written_are_those_of_all() {
        let point = |ssd_bytes, hits, read_us, written| Point {
            ssd_bytes,
            hits,
            hits_low: hits,
            hits_high: hits,
            read_us: Some(read_us),
            ssd_bytes_written_per_day: written,
        };
        // A slow disk with three quarters of the reads, and a quick one.
        let slow = Share { weight: 3.0, curve: vec![point(100.0, 1.0, 100.0, 7.0)], without_us: Some(8100.0) };
        let quick = Share { weight: 1.0, curve: vec![point(100.0, 1.0, 100.0, 5.0)], without_us: Some(500.0) };
        let told = joint(&[slow.clone(), quick.clone()]);
        let figures: Vec<_> = told.iter().map(|point| (point.ssd_bytes, point.read_us, point.ssd_bytes_written_per_day)).collect();
        assert_eq!(figures, [(0.0, Some(6200.0), 0.0), (100.0, Some(200.0), 7.0), (200.0, Some(100.0), 12.0)]);
        let half = point_for(&told, 0.375, |point| point.hits).expect("half of the slow one");
        assert_eq!((half.ssd_bytes, half.read_us, half.ssd_bytes_written_per_day), (50.0, Some(3200.0), 3.5));
        let unknown = Share { without_us: None, ..quick };
        assert_eq!(joint(&[slow, unknown])[0].read_us, None);
    }
}
