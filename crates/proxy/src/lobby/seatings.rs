//! The clients of a lobby in the order in which they came. When a backend needs the descriptor of a
//! client, it also gets those of some others, each once. Otherwise every backend would ask for every
//! client: 100,000 times with 20 backends and 5,000 clients.

use std::collections::VecDeque;

use super::control::Seat;

/// Most entries that are looked at for one backend at a time.
const LOOKED_AT_MAX: usize = 256;

#[derive(Debug)]
pub(super) struct Seatings {
    /// The number of the first client in `seats`; those before have been dropped.
    dropped: u64,
    seats: VecDeque<Seat>,
    /// Most entries. Backends ask for the clients whose entries were dropped.
    max: usize,
}

impl Seatings {
    pub(super) fn new(places: u32) -> Self {
        Self { dropped: 0, seats: VecDeque::new(), max: places as usize }
    }

    pub(super) fn note(&mut self, seat: Seat) {
        if self.seats.len() >= self.max {
            self.seats.pop_front();
            self.dropped += 1;
        }
        self.seats.push_back(seat);
    }

    /// Returns the number that the next client will have.
    pub(super) fn end(&self) -> u64 {
        self.dropped + self.seats.len() as u64
    }

    /// Returns up to `max` clients from number `next` on, and moves `next` behind them. `is_there`
    /// tells whether a client is still in its place.
    pub(super) fn take(
        &self,
        next: &mut u64,
        max: usize,
        is_there: impl Fn(Seat) -> bool,
    ) -> Vec<Seat> {
        let begin = next.saturating_sub(self.dropped) as usize;
        let mut found = Vec::new();
        let mut looked_at = 0;
        for seat in self.seats.iter().skip(begin).take(LOOKED_AT_MAX) {
            if found.len() == max {
                break;
            }
            looked_at += 1;
            if is_there(*seat) {
                found.push(*seat);
            }
        }
        *next = (*next).max(self.dropped) + looked_at;
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seats(places: impl IntoIterator<Item = u32>) -> Vec<Seat> {
        places.into_iter().map(|place| Seat { place, generation: 1 }).collect()
    }

    fn noted(max: u32, places: std::ops::Range<u32>) -> Seatings {
        let mut noted = Seatings::new(max);
        seats(places).into_iter().for_each(|seat| noted.note(seat));
        noted
    }

    #[test]
    fn each_backend_gets_each_client_once() {
        let mut all = noted(100, 0..5);
        let mut next = 0;
        assert_eq!(all.take(&mut next, 3, |_| true), seats(0..3));
        assert_eq!(all.take(&mut next, 3, |_| true), seats(3..5));
        assert_eq!(all.take(&mut next, 3, |_| true), []);
        all.note(Seat { place: 7, generation: 1 });
        assert_eq!(all.take(&mut next, 3, |_| true), seats([7]));
        let mut newcomer = all.end();
        assert_eq!(all.take(&mut newcomer, 3, |_| true), []);
    }

    #[test]
    fn those_that_have_left_are_passed_over_some_at_a_time() {
        let all = noted(10_000, 0..1_000);
        let mut next = 0;
        assert_eq!(all.take(&mut next, 3, |seat| seat.place >= 700), []);
        assert_eq!(next, LOOKED_AT_MAX as u64);
        assert_eq!(all.take(&mut next, 3, |_| false), []);
        assert_eq!(all.take(&mut next, 3, |seat| seat.place >= 700), seats(700..703));
        assert_eq!(next, 703);
    }

    #[test]
    fn the_oldest_are_dropped_and_others_are_not_skipped() {
        let mut all = noted(4, 0..3);
        let (mut early, mut late) = (0, 0);
        assert_eq!(all.take(&mut late, 2, |_| true), seats(0..2));
        seats(3..7).into_iter().for_each(|seat| all.note(seat));
        assert_eq!(all.take(&mut early, 9, |_| true), seats(3..7));
        assert_eq!(all.take(&mut late, 9, |_| true), seats(3..7));
        assert_eq!((early, late, all.end()), (7, 7, 7));
    }
}
