//! Limits for what is not yet as it should be: `limits.txt` has one a line, and they may be lowered, not raised.
//!
//! A line is a kind, a place and a number; what has no line may have the kind's goal at most. `tidy --tighten` lowers the numbers to
//! what is found, and removes lines that are no longer needed.

use std::collections::BTreeMap;

/// What is counted: its word in `limits.txt`, what every place may have without a line there, and what to do about more.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Kind {
    /// The first word of its lines.
    pub name: &'static str,
    /// The goal.
    pub goal: usize,
    /// Said when there is more than the limit: `{place} has {found} {what}`.
    pub what: &'static str,
}

/// Something that was counted.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Count {
    /// What.
    pub kind: Kind,
    /// Where, in words that do not change when code moves within its crate.
    pub place: String,
    /// How many.
    pub found: usize,
    /// The latest of them, for the reader of a complaint; may be empty.
    pub example: String,
}

/// The limits, by kind and place.
#[derive(Default)]
pub struct Limits(BTreeMap<(String, String), usize>);

impl Limits {
    /// Reads `limits.txt`. Lines that begin with `#` are for people.
    pub fn of(text: &str) -> Result<Limits, String> {
        let mut limits = BTreeMap::new();
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#') && !line.is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (Some((number, place)), true) = (words.split_last(), words.len() > 2) else {
                return Err(format!("line {}: a kind, a place and a number are wanted", index + 1));
            };
            let number = number.parse().map_err(|_| format!("line {}: {number} is no number", index + 1))?;
            limits.insert((place[0].to_string(), place[1..].join(" ")), number);
        }
        Ok(Limits(limits))
    }

    fn limit(&self, count: &Count) -> usize {
        self.0.get(&(count.kind.name.into(), count.place.clone())).copied().unwrap_or(count.kind.goal)
    }

    /// One complaint for each count above its limit.
    pub fn complaints(&self, counts: &[Count]) -> Vec<String> {
        let complaint = |count: &Count| {
            let limit = self.limit(count);
            let Count { kind, place, found, example } = count;
            let example = if example.is_empty() { String::new() } else { format!(" (for instance {example})") };
            (*found > limit).then(|| format!("{place} has {found} {}, more than {limit}{example}", kind.what))
        };
        counts.iter().filter_map(complaint).collect()
    }

    /// Lines that could be lower, or be removed.
    pub fn slack(&self, counts: &[Count]) -> usize {
        let found = largest(counts);
        self.0.iter().filter(|(key, limit)| found.get(key).copied().unwrap_or_default().0 < **limit).count()
    }

    /// The text of `limits.txt` with what was found where that is less, and `head` before it.
    pub fn tightened(&self, head: &str, counts: &[Count]) -> String {
        let mut text = head.to_string();
        let found = largest(counts);
        for (key, limit) in &self.0 {
            let (now, goal) = found.get(key).copied().unwrap_or_default();
            let now = now.min(*limit);
            if now > goal {
                text += &format!("{} {} {now}\n", key.0, key.1);
            }
        }
        text
    }
}

/// The largest count of each kind and place, and its goal.
fn largest(counts: &[Count]) -> BTreeMap<(String, String), (usize, usize)> {
    let mut found = BTreeMap::new();
    for count in counts {
        let most = found.entry((count.kind.name.to_string(), count.place.clone())).or_insert((0, count.kind.goal));
        most.0 = count.found.max(most.0);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind { name: "lines", goal: 2, what: "lines" };

    fn count(place: &str, found: usize) -> Count {
        Count { kind: KIND, place: place.into(), found, example: String::new() }
    }

    #[test]
    fn more_than_the_limit_is_a_complaint_and_the_goal_holds_where_no_limit_is() {
        let limits = Limits::of("# for people\nlines a b 5\n").unwrap();
        assert!(limits.complaints(&[count("a b", 5), count("c", 2)]).is_empty());
        assert_eq!(limits.complaints(&[count("a b", 6), count("c", 3)]).len(), 2);
    }

    #[test]
    fn limits_are_lowered_and_never_raised() {
        let limits = Limits::of("lines a 5\nlines b 5\nlines gone 4\nlines good 3\n").unwrap();
        let counts = [count("a", 4), count("b", 9), count("good", 2)];
        assert_eq!(limits.slack(&counts), 3);
        assert_eq!(limits.tightened("# head\n", &counts), "# head\nlines a 4\nlines b 5\n");
    }

    #[test]
    fn a_line_that_cannot_be_read_is_an_error() {
        assert!(Limits::of("lines 5").is_err() && Limits::of("lines a b").is_err());
    }
}
