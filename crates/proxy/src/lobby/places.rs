//! The places that lobbies share. At most one lobby has a client in a place at a time, since the number
//! of the client's socket in Weir belongs to the place. So all direct pools together need as many
//! numbers as there may be clients.

use std::{
    io,
    os::fd::RawFd,
    sync::{Arc, Mutex},
};

use room::Numbers;

use crate::exchange::hub::lock;

#[derive(Debug)]
pub(crate) struct Places {
    numbers: Arc<Numbers>,
    taken: Mutex<Taken>,
}

#[derive(Debug)]
struct Taken {
    is_taken: Vec<bool>,
    /// Places that are free, or were when they were noted. The last is the next.
    free: Vec<u32>,
}

impl Places {
    /// Reserves the numbers of so many places.
    ///
    /// # Errors
    /// When the limit of open files leaves no room.
    pub(super) fn reserve(count: u32) -> io::Result<Arc<Self>> {
        Numbers::reserve(count).map(Self::of)
    }

    /// Reserves the numbers that another process has used; None if they are in use here.
    pub(super) fn reserve_at(base: RawFd, count: u32) -> Option<Arc<Self>> {
        Numbers::reserve_at(base, count).ok().map(Self::of)
    }

    fn of(numbers: Numbers) -> Arc<Self> {
        let count = numbers.count();
        let is_taken = vec![false; count as usize];
        let taken = Mutex::new(Taken { is_taken, free: (0..count).rev().collect() });
        Arc::new(Self { numbers: Arc::new(numbers), taken })
    }

    pub(super) fn numbers(&self) -> Arc<Numbers> {
        Arc::clone(&self.numbers)
    }

    pub(super) fn count(&self) -> u32 {
        self.numbers.count()
    }

    /// Returns a place that no lobby has.
    pub(super) fn take(&self) -> Option<u32> {
        let mut taken = lock(&self.taken);
        loop {
            let place = taken.free.pop()?;
            // It may have been claimed since it was noted.
            if !std::mem::replace(&mut taken.is_taken[place as usize], true) {
                return Some(place);
            }
        }
    }

    /// Takes this place. Returns false if a lobby has it.
    pub(super) fn claim(&self, place: u32) -> bool {
        let mut taken = lock(&self.taken);
        let is_taken = taken.is_taken.get_mut(place as usize);
        is_taken.is_some_and(|is_taken| !std::mem::replace(is_taken, true))
    }

    /// Gives back a place, whose number no longer refers to a client's socket.
    pub(super) fn give_back(&self, place: u32) {
        let mut taken = lock(&self.taken);
        taken.is_taken[place as usize] = false;
        taken.free.push(place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_one_lobby() {
        let places = Places::reserve(3).unwrap();
        assert_eq!(places.take(), Some(0));
        assert!(places.claim(1) && !places.claim(1) && !places.claim(0) && !places.claim(3));
        assert_eq!((places.take(), places.take()), (Some(2), None));
        places.give_back(1);
        assert_eq!((places.take(), places.take()), (Some(1), None));
    }
}
