//! How often somebody may ask: token buckets by who connects.

use crate::secret::Digest;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Instant;

/// Buckets kept. Those that are full again are forgotten first: a new one would be no different.
const BUCKETS_MAX: usize = 1024;

/// Whose requests count together.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Client {
    /// A user of this machine, by the socket.
    User(u32),
    /// An address; of IPv6 the first 64 bits, which one machine may change at will within.
    Address(IpAddr),
    /// Who has a token, wherever they are, and the browsers that it has logged in.
    Token(Digest),
    /// A browser that a code has logged in.
    Session(Digest),
}

impl Client {
    /// The client at an address.
    pub fn at(address: IpAddr) -> Client {
        match address.to_canonical() {
            IpAddr::V6(six) if !six.is_loopback() => {
                let network = u128::from(six) & !u128::from(u64::MAX);
                Client::Address(IpAddr::V6(network.into()))
            }
            other => Client::Address(other),
        }
    }
}

/// One limit for all clients, each with a bucket of its own.
#[derive(Debug)]
pub struct Limit {
    per_second: f64,
    burst: f64,
    buckets: Mutex<HashMap<Client, Bucket>>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    left: f64,
    at: Instant,
}

impl Limit {
    /// `per_second` in the long run, `burst` at once.
    pub fn new(per_second: f64, burst: f64) -> Limit {
        Limit { per_second, burst, buckets: Mutex::default() }
    }

    /// Takes one.
    ///
    /// # Errors
    /// In how many seconds there will be one.
    pub fn take(&self, client: Client, now: Instant) -> Result<(), u64> {
        let mut buckets = self.buckets.lock().expect("no holder of this lock panics");
        let left = |bucket: &Bucket| (bucket.left + now.duration_since(bucket.at).as_secs_f64() * self.per_second).min(self.burst);
        if buckets.len() >= BUCKETS_MAX && !buckets.contains_key(&client) {
            buckets.retain(|_, bucket| left(bucket) < self.burst);
            if buckets.len() >= BUCKETS_MAX {
                let fullest = buckets.iter().max_by(|a, b| left(a.1).total_cmp(&left(b.1))).map(|(client, _)| *client);
                fullest.and_then(|client| buckets.remove(&client));
            }
        }
        let bucket = buckets.entry(client).or_insert(Bucket { left: self.burst, at: now });
        let there = left(bucket);
        if there < 1.0 {
            return Err(((1.0 - there) / self.per_second).ceil().max(1.0) as u64);
        }
        *bucket = Bucket { left: there - 1.0, at: now };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_burst_then_the_rate_each_client_by_itself() {
        let limit = Limit::new(2.0, 3.0);
        let (start, me, other) = (Instant::now(), Client::User(1), Client::User(2));
        for _ in 0..3 {
            assert_eq!(limit.take(me, start), Ok(()));
        }
        assert_eq!(limit.take(me, start), Err(1));
        assert_eq!(limit.take(other, start), Ok(()));
        assert_eq!(limit.take(me, start + Duration::from_millis(500)), Ok(()));
        assert_eq!(limit.take(me, start + Duration::from_millis(500)), Err(1));
        let slow = Limit::new(5.0 / 60.0, 1.0);
        assert_eq!((slow.take(me, start), slow.take(me, start)), (Ok(()), Err(12)));
    }

    #[test]
    fn many_clients_do_not_fill_memory_and_do_not_free_the_one_at_its_limit() {
        let limit = Limit::new(0.001, 2.0);
        let now = Instant::now();
        assert_eq!([(); 2].map(|()| limit.take(Client::User(0), now)), [Ok(()); 2]);
        for user in 1..BUCKETS_MAX as u32 * 2 {
            assert_eq!(limit.take(Client::User(user), now), Ok(()));
        }
        assert!(limit.buckets.lock().expect("nobody panicked").len() <= BUCKETS_MAX);
        assert!(limit.take(Client::User(0), now).is_err());
    }

    #[test]
    fn addresses_of_one_network_are_one_client() {
        let at = |text: &str| Client::at(text.parse().expect("an address"));
        assert_eq!(at("2001:db8::1"), at("2001:db8::2:3"));
        assert_ne!(at("2001:db8::1"), at("2001:db8:0:1::1"));
        assert_ne!(at("192.0.2.1"), at("192.0.2.2"));
        assert_eq!(at("::ffff:192.0.2.1"), at("192.0.2.1"));
    }
}
