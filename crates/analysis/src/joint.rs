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
}

/// A straight piece of a concave curve.
struct Piece {
    of: usize,
    ssd_bytes: f64,
    hits: f64,
    /// Half of the band at its end.
    half: f64,
}

/// The curve of the whole; empty if no load has any. Bands of different loads are taken to be
/// independent of each other.
#[must_use]
pub fn joint(shares: &[Share]) -> Vec<Point> {
    let all: f64 = shares.iter().map(|share| share.weight.max(0.0)).sum();
    if all <= 0.0 {
        return Vec::new();
    }
    let mut pieces: Vec<Piece> = Vec::new();
    for (of, share) in shares.iter().enumerate() {
        let weight = share.weight.max(0.0) / all;
        let mut before = (0.0, 0.0);
        for point in hull(&share.curve) {
            let half = (point.hits_high - point.hits_low).max(0.0) / 2.0 * weight;
            pieces.push(Piece { of, ssd_bytes: point.ssd_bytes - before.0, hits: (point.hits - before.1) * weight, half });
            before = (point.ssd_bytes, point.hits);
        }
    }
    let gain = |piece: &Piece| piece.hits / piece.ssd_bytes;
    pieces.sort_by(|one, other| gain(other).total_cmp(&gain(one)));
    let mut halves = vec![0.0_f64; shares.len()];
    let (mut ssd_bytes, mut hits) = (0.0, 0.0);
    let step = |piece: Piece| {
        ssd_bytes += piece.ssd_bytes;
        hits += piece.hits;
        halves[piece.of] = piece.half;
        let half = halves.iter().map(|half| half * half).sum::<f64>().sqrt();
        Point { ssd_bytes, hits, hits_low: (hits - half).max(0.0), hits_high: (hits + half).min(1.0) }
    };
    pieces.into_iter().map(step).collect()
}

/// The SSD that brings a share of hits, by one of a point's three figures; `None` where the curve does
/// not reach it. Between two points it is a straight line.
pub fn size_for(curve: &[Point], share: f64, figure: fn(&Point) -> f64) -> Option<f64> {
    let mut before = (0.0, 0.0);
    for point in curve {
        let at = figure(point);
        if at >= share {
            let part = if at > before.1 { (share - before.1) / (at - before.1) } else { 1.0 };
            return Some(before.0 + (point.ssd_bytes - before.0) * part.clamp(0.0, 1.0));
        }
        before = (point.ssd_bytes, at);
    }
    None
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
            Point { ssd_bytes, hits, hits_low: hits - 0.02, hits_high: hits + 0.02 }
        };
        (1..=200).map(point).collect()
    }

    fn hits_at(curve: &[Point], ssd_bytes: f64) -> f64 {
        let at = curve.iter().rposition(|point| point.ssd_bytes <= ssd_bytes);
        at.map_or(0.0, |at| curve[at].hits)
    }

    #[test]
    fn equal_loads_need_twice_as_much_together() {
        let one = curve(100.0);
        let both = joint(&[Share { weight: 3.0, curve: one.clone() }, Share { weight: 3.0, curve: one.clone() }]);
        let alone = size_for(&one, 0.9, |point| point.hits).expect("reached");
        let together = size_for(&both, 0.9, |point| point.hits).expect("reached");
        assert!((together / alone - 2.0).abs() < 0.1, "{alone} {together}");
        // Two independent halves of one band.
        let last = both.last().expect("points");
        let half = (last.hits_high - last.hits_low) / 2.0;
        assert!(half < 0.02, "{half}");
    }

    #[test]
    fn no_split_of_the_room_brings_more() {
        let (busy, idle) = (curve(300.0), curve(150.0));
        let whole = joint(&[Share { weight: 9.0, curve: busy.clone() }, Share { weight: 1.0, curve: idle.clone() }]);
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
        let point = |ssd_bytes, hits| Point { ssd_bytes, hits, hits_low: hits, hits_high: hits };
        assert!(joint(&[]).is_empty() && joint(&[Share { weight: 0.0, curve: curve(10.0) }]).is_empty());
        // A dent, a step back and twice the same size.
        let odd = vec![point(10.0, 0.1), point(20.0, 0.6), point(20.0, 0.5), point(30.0, 0.55), point(40.0, 0.9)];
        let told = joint(&[Share { weight: 1.0, curve: odd }]);
        let sizes: Vec<f64> = told.iter().map(|point| point.ssd_bytes).collect();
        assert_eq!(sizes, [20.0, 40.0]);
        assert_eq!(size_for(&told, 0.95, |point| point.hits), None);
        assert_eq!(size_for(&told, 0.3, |point| point.hits), Some(10.0));
    }
}
