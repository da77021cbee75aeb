use std::{
    io::Read as _,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::net::UnixStream,
    },
    sync::Arc,
};

use super::{
    Answer, Kept, Numbers, Order, Recall, Room, State, Stranded, Word, c,
    library::backend::{
        backend_act, backend_answer, backend_read, backend_serve, lobby_claim, lobby_enter,
        lobby_return, words_len,
    },
};

fn make_room(backends: u32, places: u32) -> Room {
    Room::new(backends, Arc::new(Numbers::reserve(places).unwrap())).unwrap()
}

/// Takes a client into a place. Returns the client's end.
fn take(room: &Room, place: u32) -> UnixStream {
    let (near, far) = UnixStream::pair().unwrap();
    assert!(room.take(place, &near.into(), b"", (0, 0)));
    far
}

fn claim(room: &Room, line: u32, place: u32) {
    let (mut claimed, mut generation) = (0, 0);
    lobby_claim(&room.view, line, place.into(), &mut claimed, &mut generation);
    assert_eq!((claimed, generation), (place, room.word(place).generation()));
}

#[test]
fn lobbies_share_numbers() {
    let numbers = Arc::new(Numbers::reserve(2).unwrap());
    let rooms = [(); 2].map(|()| Room::new(1, Arc::clone(&numbers)).unwrap());
    let mut clients = [take(&rooms[0], 0), take(&rooms[1], 1)];
    assert_eq!(rooms[0].socket(0) + 1, rooms[1].socket(1));
    assert!(rooms[0].vacate(0));
    assert_eq!(clients[0].read(&mut [0]).unwrap(), 0, "its connection has ended");
    clients[1].set_nonblocking(true).unwrap();
    assert!(clients[1].read(&mut [0]).is_err(), "the other's has not");
}

#[test]
fn a_word_has_its_parts() {
    let room = make_room(9, 2);
    let parts = |room: &Room| {
        let word = room.word(1);
        (word.state(), word.owner(), word.generation())
    };
    assert_eq!(parts(&room), (State::Free, None, 0));
    let _client = take(&room, 1);
    assert_eq!(parts(&room), (State::Taken, None, 1));
    assert!(room.admit(1));
    assert_eq!(parts(&room), (State::Armed, None, 1));
    claim(&room, 7, 1);
    assert_eq!(parts(&room), (State::Owned, Some(7), 1));
    assert!(room.is_owner(1, 7, 1) && !room.is_owner(1, 7, 2) && !room.is_owner(1, 6, 1));
    assert_eq!(room.recall(1), Recall::Asked);
    assert_eq!(parts(&room), (State::Owned, Some(7), 1));
    assert_eq!(Word(0xfe).state(), State::Taken);
}

#[test]
fn a_pinned_client_is_idle_between_its_transactions() {
    let room = make_room(2, 3);
    let _client = take(&room, 1);
    assert!(room.admit(1));
    claim(&room, 1, 1);
    backend_serve(&room.view, 1, 1, 0);
    for (doing, is_idle, is_pinned) in [
        (c::LOBBY_SERVING, false, false),
        (c::LOBBY_LINGERING, true, false),
        (c::LOBBY_HOLDING, true, false),
        (c::LOBBY_PINNED_IDLE, true, true),
    ] {
        backend_act(&room.view, 1, doing);
        assert_eq!((room.is_idle(1), room.is_pinned_idle(1)), (is_idle, is_pinned));
    }
    room.use_lines(2);
    assert_eq!(room.kept(), Kept { all: 1, keeping: 1, large: 0 });
}

#[test]
fn a_backend_that_has_left_has_come() {
    let room = make_room(2, 1);
    assert!(!room.has_come(1));
    lobby_enter(&room.view, 1, 4711, 0);
    room.leave(1);
    assert!(room.has_come(1));
    room.clear_line(1);
    assert!(!room.has_come(1));
}

#[test]
fn an_order_and_its_answer_are_for_one_transaction() {
    let room = make_room(2, 3);
    let _client = take(&room, 1);
    assert_eq!(room.serving(1), None);
    assert!(room.admit(1));
    claim(&room, 1, 1);
    backend_serve(&room.view, 1, 1, 7);
    let serving = room.serving(1).unwrap();
    assert_eq!((serving.line, serving.transaction), (1, 7));
    backend_answer(&room.view, 1, c::LOBBY_RUNS, 5);
    assert_eq!(room.answer(1), Some(Answer::Runs(5)));
    room.order(Order::Ask, serving);
    assert_eq!(room.answer(1), None);
    let read = |order| backend_read(&room.view, 1, order);
    assert_eq!((read(c::LOBBY_ASK), read(c::LOBBY_END), read(c::LOBBY_CANCEL)), (7, 0, 0));
}

#[test]
fn last_words_that_are_too_long_are_left_out() {
    let room = make_room(1, 2);
    room.leave_words(1, b"SFATAL");
    assert_eq!(words_len(&room.view, 1), 6);
    room.leave_words(1, &[b'x'; c::LOBBY_WORDS as usize]);
    assert_eq!(words_len(&room.view, 1), 0);
}

#[test]
fn a_place_that_could_not_be_filled_is_free_again() {
    let room = make_room(1, 1);
    let long = vec![b'x'; c::LOBBY_WINDOW as usize];
    assert!(!Room::has_room_for(&long));
    let (near, _far) = UnixStream::pair().unwrap();
    assert!(!room.take(0, &near.into(), &long, (0, 0)));
    assert!(room.untake(0));
    let _client = take(&room, 0);
    assert!(room.untake(0));
    assert_eq!(room.word(0).state(), State::Free);
}

#[test]
fn a_number_refers_to_the_client_of_its_place() {
    let room = make_room(1, 3);
    let (near, mut far) = UnixStream::pair().unwrap();
    assert!(!room.put(3, &near.as_fd().try_clone_to_owned().unwrap()));
    assert!(room.put(1, &near.into()));
    net::sys::socket::send(room.socket(1), b"x").unwrap();
    room.clear(1);
    let mut buffer = [0; 8];
    assert_eq!(far.read(&mut buffer).unwrap(), 1);
    assert_eq!(far.read(&mut buffer).unwrap(), 0);
}

#[test]
fn a_client_that_ends_leaves_nothing_in_its_place() {
    let room = make_room(1, 2);
    let (near, mut far) = UnixStream::pair().unwrap();
    // A backend has a copy of the socket.
    let copy: OwnedFd = near.as_fd().try_clone_to_owned().unwrap();
    assert!(room.take(1, &near.into(), b";d:a=b", (0, 0)));
    let (state, channels) = room.state_of(1);
    assert!(state.ends_with(b";d:a=b") && channels.is_empty());
    assert!(room.vacate(1));
    assert_eq!(far.read(&mut [0; 8]).unwrap(), 0);
    assert_eq!(room.view.read_window(1, 0, 64), [0; 64]);
    drop(copy);
}

#[test]
fn a_message_about_an_earlier_client_returns_nobody() {
    let room = make_room(2, 1);
    let _client = take(&room, 0);
    assert!(room.admit(0));
    claim(&room, 1, 0);
    lobby_return(&room.view, 1, 0, 1);
    assert!(!room.acknowledge(0, 1, 2) && !room.acknowledge(0, 0, 1));
    assert!(room.acknowledge(0, 1, 1));
    assert!(room.let_go(0));
}

#[test]
fn another_process_opens_a_lobby_of_the_same_size() {
    let room = make_room(2, 3);
    let file = || room.view.memory().file().try_clone().unwrap();
    let _clients = [take(&room, 0), take(&room, 1)];
    assert!(room.admit(0) && room.admit(1));
    claim(&room, 0, 1);
    assert!(Stranded::open(file(), 2, 4).is_none());
    // A line more, and the size is the same.
    assert!(Stranded::open(file(), 3, 3).is_none());
    let stranded = Stranded::open(file(), 2, 3).unwrap();
    assert_eq!([0, 1, 2, 3].map(|place| stranded.take(place)), [true, false, false, false]);
    assert_eq!(room.word(0).state(), State::Taken);
}
