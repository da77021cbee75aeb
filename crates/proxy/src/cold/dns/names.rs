//! The known host names: their addresses, how long those are valid, and the workers that wait for
//! an answer. Plain bookkeeping, without network access. Every name is remembered until Weir ends,
//! since their number is limited by the configuration.

use std::{collections::BTreeMap, mem, net::IpAddr};

use engine::ids::Micros;

use crate::exchange::requests::Question;

#[derive(Debug, Default)]
pub(crate) struct Names {
    hosts: BTreeMap<String, Host>,
    /// The highest serial number seen of each zone; 0 before the first.
    zones: BTreeMap<String, u32>,
}

#[derive(Debug, Default)]
struct Host {
    /// The last answer; empty if the name does not exist.
    addresses: Vec<IpAddr>,
    /// The last answer that had addresses.
    last_good: Vec<IpAddr>,
    /// The number of times that it was given out.
    given: usize,
    until: Micros,
    looking: bool,
    waiting: Vec<Question>,
}

/// The result of a question.
#[derive(Debug)]
pub(crate) enum Asked {
    Known(Question, Vec<IpAddr>),
    /// The name must be looked up; the answer goes to [`Names::learn`].
    LookUp,
    /// The name is being looked up already.
    Wait,
}

/// The effect of an answer.
#[derive(Debug)]
pub(crate) struct Learnt {
    pub(crate) answers: Vec<(Question, Vec<IpAddr>)>,
    /// Addresses that the name no longer has.
    pub(crate) gone: Vec<IpAddr>,
}

/// A name, for SHOW DNS_HOSTS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostInfo {
    pub name: String,
    /// The time for which it is still remembered, in microseconds.
    pub ttl: Micros,
    pub addresses: Vec<IpAddr>,
}

/// A zone, for SHOW DNS_ZONES.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneInfo {
    pub name: String,
    pub serial: u32,
    /// The number of its names that were asked for.
    pub hosts: usize,
}

/// Everything known of names, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamesInfo {
    pub hosts: Vec<HostInfo>,
    pub zones: Vec<ZoneInfo>,
    /// The number of names that are being looked up now.
    pub queries: usize,
}

impl Host {
    /// Returns all addresses, beginning with another one each time.
    fn give(&mut self) -> Vec<IpAddr> {
        let mut given = self.addresses.clone();
        if !given.is_empty() {
            let first = self.given % given.len();
            given.rotate_left(first);
            self.given = self.given.wrapping_add(1);
        }
        given
    }
}

impl Names {
    pub(crate) fn ask(&mut self, question: Question, now: Micros) -> Asked {
        if let Some(zone) = zone(&question.host) {
            self.zones.entry(zone.to_owned()).or_default();
        }
        let host = self.hosts.entry(question.host.clone()).or_default();
        if !host.looking && now < host.until {
            return Asked::Known(question, host.give());
        }
        host.waiting.push(question);
        if mem::replace(&mut host.looking, true) { Asked::Wait } else { Asked::LookUp }
    }

    /// Records an answer, and until when it is valid; empty if the name does not exist.
    pub(crate) fn learn(&mut self, name: &str, addresses: Vec<IpAddr>, until: Micros) -> Learnt {
        let host = self.hosts.entry(name.to_owned()).or_default();
        (host.looking, host.until) = (false, until);
        host.addresses = addresses;
        let mut gone = Vec::new();
        // The failure of a name server does not mean that addresses have changed.
        if !host.addresses.is_empty() {
            gone = mem::replace(&mut host.last_good, host.addresses.clone());
            gone.retain(|old| !host.addresses.contains(old));
        }
        let waiting = mem::take(&mut host.waiting);
        let answers = waiting.into_iter().map(|question| (question, host.give())).collect();
        Learnt { answers, gone }
    }

    pub(crate) fn zones(&self) -> Vec<String> {
        self.zones.keys().cloned().collect()
    }

    /// Records a zone's serial number. If it is new or greater than before, returns the previous
    /// one and the zone's names with known addresses. Serial numbers wrap around (RFC 1982).
    pub(crate) fn grown(&mut self, name: &str, serial: u32) -> Option<(u32, Vec<String>)> {
        let known = self.zones.get_mut(name)?;
        let is_first = *known == 0 && serial != 0;
        if !is_first && serial.wrapping_sub(*known).cast_signed() <= 0 {
            return None;
        }
        let old = mem::replace(known, serial);
        let hosts =
            self.hosts.iter().filter(|(host, known)| zone(host) == Some(name) && !known.looking);
        Some((old, hosts.map(|(host, _)| host.clone()).collect()))
    }

    pub(crate) fn info(&self, now: Micros) -> NamesInfo {
        let host = |(name, host): (&String, &Host)| HostInfo {
            name: name.clone(),
            ttl: host.until.saturating_sub(now),
            addresses: host.addresses.clone(),
        };
        let in_zone =
            |name: &str| self.hosts.keys().filter(|host| zone(host) == Some(name)).count();
        let zone = |(name, serial): (&String, &u32)| ZoneInfo {
            name: name.clone(),
            serial: *serial,
            hosts: in_zone(name),
        };
        NamesInfo {
            hosts: self.hosts.iter().map(host).collect(),
            zones: self.zones.iter().map(zone).collect(),
            queries: self.hosts.values().filter(|host| host.looking).count(),
        }
    }
}

/// Returns the part after the first dot.
fn zone(host: &str) -> Option<&str> {
    host.split_once('.').map(|(_, zone)| zone).filter(|zone| !zone.is_empty())
}

#[cfg(test)]
mod tests {
    use engine::ids::WorkerId;

    use super::*;

    fn question(host: &str, ticket: u64) -> Question {
        Question { host: host.to_owned(), port: 5432, is_node: false, worker: WorkerId(0), ticket }
    }

    fn ips(last: &[u8]) -> Vec<IpAddr> {
        last.iter().map(|last| IpAddr::from([10, 0, 0, *last])).collect()
    }

    fn known(asked: Asked) -> Vec<IpAddr> {
        match asked {
            Asked::Known(_, addresses) => addresses,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_name_is_asked_for_once_and_its_addresses_come_in_turn() {
        let mut names = Names::default();
        assert!(matches!(names.ask(question("a.b", 1), 0), Asked::LookUp));
        assert!(matches!(names.ask(question("a.b", 2), 0), Asked::Wait));
        let learnt = names.learn("a.b", ips(&[1, 2, 3]), 100);
        let answers: Vec<_> =
            learnt.answers.into_iter().map(|(asker, given)| (asker.ticket, given)).collect();
        assert_eq!(answers, [(1, ips(&[1, 2, 3])), (2, ips(&[2, 3, 1]))]);
        assert_eq!(known(names.ask(question("a.b", 3), 99)), ips(&[3, 1, 2]));
        assert_eq!(known(names.ask(question("a.b", 4), 99)), ips(&[1, 2, 3]));
        assert!(matches!(names.ask(question("a.b", 5), 100), Asked::LookUp), "it is too old");
    }

    #[test]
    fn addresses_that_are_gone_are_told_but_not_when_the_name_fails_for_a_while() {
        let mut names = Names::default();
        assert_eq!(names.learn("a", ips(&[1, 2]), 1).gone, ips(&[]));
        assert_eq!(names.learn("a", Vec::new(), 2).gone, ips(&[]));
        assert_eq!(known(names.ask(question("a", 1), 1)), ips(&[]));
        assert_eq!(names.learn("a", ips(&[2, 3]), 3).gone, ips(&[1]));
        assert_eq!(names.learn("a", ips(&[3, 2]), 4).gone, ips(&[]));
    }

    #[test]
    fn a_zone_that_has_grown_has_its_names_asked_for() {
        let mut names = Names::default();
        for host in ["a.z.example", "b.z.example", "c.other", "bare"] {
            names.ask(question(host, 1), 0);
            names.learn(host, ips(&[1]), 100);
        }
        assert_eq!(names.zones(), ["other", "z.example"]);
        let hosts = vec!["a.z.example".to_owned(), "b.z.example".to_owned()];
        assert_eq!(names.grown("z.example", 7), Some((0, hosts.clone())));
        assert_eq!(names.grown("z.example", 7), None);
        assert_eq!(names.grown("z.example", 6), None);
        assert_eq!(names.grown("z.example", 0x8000_0006), Some((7, hosts.clone())));
        assert_eq!(names.grown("z.example", 1), Some((0x8000_0006, hosts)), "they go round");
        let mut names = Names::default();
        names.ask(question("a.z.example", 1), 0);
        names.learn("a.z.example", ips(&[1]), 100);
        // As made from a date without its century.
        let first = names.grown("z.example", 2_611_230_341);
        assert_eq!(first, Some((0, vec!["a.z.example".to_owned()])), "the first may be large");
        assert_eq!(names.grown("z.example", 2_611_230_341), None);
    }

    #[test]
    fn known_names_can_be_listed() {
        let mut names = Names::default();
        for host in ["a.z.example", "b.z.example", "c.other", "bare"] {
            names.ask(question(host, 1), 0);
            names.learn(host, ips(&[1]), 100);
        }
        names.grown("z.example", 1);
        let info = names.info(40);
        assert_eq!(info.hosts.len(), 4);
        assert_eq!((info.hosts[0].ttl, info.hosts[0].addresses.clone()), (60, ips(&[1])));
        let zone = ZoneInfo { name: "z.example".into(), serial: 1, hosts: 2 };
        assert_eq!(info.zones[1], zone);
    }
}
