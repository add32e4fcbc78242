//! Where a byte lies on a drive and how long the head needs to get there. Pure arithmetic; times in ns as f64.

use super::set::SpindleParameters;

/// Recording zones: within one, tracks hold equally many bytes. Real drives have 15 to 30.
const ZONES: u64 = 16;

/// A place on the platters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Position {
    /// Counted from the outermost.
    pub track: u64,
    /// Of a turn, 0 to 1.
    pub angle: f64,
    /// Share of the stroke, 0 (outermost) to 1.
    pub stroke: f64,
}

/// One drive's geometry.
#[derive(Clone, Debug)]
pub(super) struct Platter {
    zones: Vec<Zone>,
    zone_bytes: u64,
    size_bytes: u64,
    span: f64,
    skew_turns: f64,
    turn_ns: f64,
    seek_track_ns: f64,
    seek_root_ns: f64,
    write_settle_ns: f64,
}

#[derive(Clone, Copy, Debug)]
struct Zone {
    first_track: u64,
    track_bytes: f64,
    ns_per_byte: f64,
}

impl Platter {
    /// A drive of `size_bytes`; the bytes are spread over `parameters.span` of the stroke.
    pub fn new(parameters: &SpindleParameters, size_bytes: u64) -> Platter {
        let turn_ns = 60e9 / parameters.rpm;
        let zone_bytes = size_bytes.div_ceil(ZONES).max(1);
        let mut first_track = 0;
        let zones = (0..ZONES)
            .map(|index| {
                let stroke = (index as f64 + 0.5) / ZONES as f64 * parameters.span;
                let rate_mb_s = parameters.rate_outer_mb_s - (parameters.rate_outer_mb_s - parameters.rate_inner_mb_s) * stroke;
                // MB/s are bytes per µs, so 1000 / rate is ns per byte.
                let ns_per_byte = 1000.0 / rate_mb_s;
                let track_bytes = turn_ns / ns_per_byte;
                let zone = Zone { first_track, track_bytes, ns_per_byte };
                first_track += (zone_bytes as f64 / track_bytes).ceil() as u64;
                zone
            })
            .collect();
        // The mean of sqrt(|x - y|) over uniformly drawn x and y is 8/15: so the mean seek comes out as stated.
        let seek_root_ns = (parameters.seek_average_ms - parameters.seek_track_ms) * 1e6 / (8.0 / 15.0);
        Platter {
            zones,
            zone_bytes,
            size_bytes: size_bytes.max(1),
            span: parameters.span,
            skew_turns: parameters.track_skew_turns,
            turn_ns,
            seek_track_ns: parameters.seek_track_ms * 1e6,
            seek_root_ns,
            write_settle_ns: parameters.write_settle_ms * 1e6,
        }
    }

    fn zone(&self, offset_bytes: u64) -> (usize, Zone) {
        let index = ((offset_bytes / self.zone_bytes) as usize).min(self.zones.len() - 1);
        (index, self.zones[index])
    }

    /// Where byte `offset_bytes` lies.
    pub fn position(&self, offset_bytes: u64) -> Position {
        let (index, zone) = self.zone(offset_bytes);
        let turns = (offset_bytes - index as u64 * self.zone_bytes) as f64 / zone.track_bytes;
        let track = zone.first_track + turns as u64;
        let angle = (turns.fract() + (self.skew_turns * track as f64).fract()).fract();
        Position { track, angle, stroke: offset_bytes as f64 / self.size_bytes as f64 * self.span }
    }

    /// Moving the head; 0 on the same track.
    pub fn seek_ns(&self, from: Position, to: Position, write: bool) -> f64 {
        if from.track == to.track {
            return 0.0;
        }
        let settle_ns = if write { self.write_settle_ns } else { 0.0 };
        self.seek_track_ns + self.seek_root_ns * (from.stroke - to.stroke).abs().sqrt() + settle_ns
    }

    /// Waiting at time `at_ns` until `to` comes by under the head. All platters are at angle 0 at time 0.
    pub fn rotation_ns(&self, at_ns: f64, to: Position) -> f64 {
        let angle = (at_ns / self.turn_ns).fract();
        (to.angle - angle).rem_euclid(1.0) * self.turn_ns
    }

    /// Reading or writing `length_bytes` at the rate of the zone where they start.
    pub fn transfer_ns(&self, offset_bytes: u64, length_bytes: u64) -> f64 {
        length_bytes as f64 * self.zone(offset_bytes).1.ns_per_byte
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 8 << 30;

    fn platter() -> Platter {
        Platter::new(&SpindleParameters::RPM_7K2, SIZE)
    }

    #[test]
    fn the_mean_seek_is_the_stated_one() {
        let platter = platter();
        let steps = 400;
        let at = |index: u64| platter.position(index * (SIZE / steps) + SIZE / steps / 2);
        let total: f64 = (0..steps).flat_map(|a| (0..steps).map(move |b| (a, b))).map(|(a, b)| platter.seek_ns(at(a), at(b), false)).sum();
        let mean_ms = total / (steps * steps) as f64 / 1e6;
        assert!((8.3..8.6).contains(&mean_ms), "mean seek {mean_ms} ms");
        let full_ms = platter.seek_ns(platter.position(0), platter.position(SIZE - 1), false) / 1e6;
        assert!((15.2..15.4).contains(&full_ms), "full stroke {full_ms} ms");
        assert_eq!(platter.seek_ns(platter.position(0), platter.position(4096), true), 0.0);
    }

    #[test]
    fn the_transfer_rate_falls_inwards() {
        let platter = platter();
        let mb_s = |offset| 1e6 / platter.transfer_ns(offset, 1_000_000) * 1e3;
        assert!((146.0..150.1).contains(&mb_s(0)), "{}", mb_s(0));
        assert!((74.9..79.0).contains(&mb_s(SIZE - 1)), "{}", mb_s(SIZE - 1));
    }

    #[test]
    fn angles_advance_with_the_bytes_and_jump_by_the_skew() {
        let platter = platter();
        let (mut last, mut switches) = (platter.position(0), 0);
        for offset in (4096..8 << 20).step_by(4096) {
            let here = platter.position(offset);
            let step = (here.angle - last.angle).rem_euclid(1.0);
            let plain = 4096.0 * platter.zones[0].ns_per_byte / platter.turn_ns;
            let expected = plain + (here.track - last.track) as f64 * 0.11;
            assert!((step - expected).abs() < 1e-6, "at {offset}: {step} not {expected}");
            switches += here.track - last.track;
            last = here;
        }
        assert_eq!(switches, (8u64 << 20) / platter.zones[0].track_bytes as u64);
    }

    #[test]
    fn rotation_waits_less_than_a_turn() {
        let platter = platter();
        for step in 0..1000 {
            let wait = platter.rotation_ns(step as f64 * 12_345.0, platter.position(step * 1_000_003));
            assert!((0.0..=platter.turn_ns).contains(&wait), "{wait}");
        }
    }
}
