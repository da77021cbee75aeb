//! Any values of `weir.state`, one per line, as a server's reports from its login on. Values that
//! are not understood must not count as known.

use engine::pins::Pins;
use engine::state_report::{OF_EVENTS, StateReport};

pub fn state_report(data: &[u8]) {
    let mut values = data.split(|byte| *byte == b'\n');
    let Some(first) = values.next() else { return };
    let Some(mut report) = StateReport::at_login(first) else { return };
    assert!(report.state().is_some(), "what is believed at login is known");
    for (at, value) in values.enumerate() {
        let events = report.events();
        let is_clients = at % 3 != 2;
        report.hear(value, is_clients);
        assert_eq!(report.state().is_some(), report.is_known(), "what is known can be told");
        assert_eq!(report.is_known(), StateReport::at_login(value).is_some(), "by itself as well");
        let told = report.events().pins.without(OF_EVENTS | Pins::UNVERIFIED);
        assert!(told.is_empty(), "events stand for nothing else");
        if !is_clients {
            assert_eq!(report.events(), events, "Weir's own are nobody's");
        }
        if let Some(state) = report.state() {
            let names = [state.settings, state.channels, state.prepared];
            let mut names = names.iter().flatten().flat_map(|all| all.all());
            assert!(names.all(|one| !one.name.contains(&0)), "a zero in a name");
        }
        if at % 4 == 3 {
            report.judged();
        }
    }
}
