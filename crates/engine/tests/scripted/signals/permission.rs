//! PostgreSQL decides whether a client may signal the sessions of another user.

use super::*;

#[test]
fn whether_another_users_session_may_be_signaled_postgresql_says() {
    const ROLE: &str = "DO $weir$BEGIN RAISE EXCEPTION USING ERRCODE = '42501', \
        MESSAGE = 'must be a member of the role whose query is being canceled or member of \
        pg_signal_backend'; END$weir$";
    for (says, answer, cancels) in [("yes", CANCELED, true), ("role", ROLE, false)] {
        let rig = auto(2, add_others);
        let (_target, pid, _) = busy(&rig, 0);
        let (requester, _) = told(&rig, 1, "bob");
        requester.send([cancel(pid)]);
        let server = rig.server(1);
        is_asked(&server, "alice", false);
        assert_eq!(rig.cancels(), []);
        server.send([allows(says), ready('I')]);
        assert_eq!(rig.cancels().len(), usize::from(cancels));
        if cancels {
            rig.finish_cancel();
        }
        server.answers(answer);
        requester.expect([done("OK")]);
    }
}

#[test]
fn a_role_is_no_permission_and_is_asked_about() {
    let rig = auto(1, |_| {});
    let (_target, pid, _) = busy(&rig, 0);
    let requester = rig.client();
    requester.send([query("BEGIN")]);
    let server = rig.server(1);
    server.take();
    server.send([complete("BEGIN"), ready('T')]);
    requester.send([query("SET LOCAL ROLE nobody")]);
    server.take();
    server.send([complete("SET"), ready('T')]);
    requester.take();
    requester.send([cancel(pid)]);
    is_asked(&server, "alice", false);
    server.send([allows("superuser"), ready('T')]);
    let answer = String::from_utf8_lossy(&server.take()).into_owned();
    assert!(answer.contains("must be a superuser to cancel superuser query"), "{answer}");
    assert_eq!(rig.cancels(), []);
}

#[test]
fn the_question_does_not_end_a_batch() {
    for fails in [false, true] {
        let rig = auto(1, add_others);
        let (_target, pid, _) = busy(&rig, 0);
        let (requester, _) = told(&rig, 0, "bob");
        requester.send([parse("", PARAMETER), flush()]);
        let server = rig.server(1);
        server.take();
        server.send([parsed()]);
        requester.expect([parsed()]);
        requester.send([bind_id("", pid), execute(), sync()]);
        is_asked(&server, "alice", true);
        if fails {
            server.send([error("57014", "canceling statement due to statement timeout")]);
            server.expect([sync()]);
            server.send([ready('I')]);
            let message = "canceling statement due to statement timeout";
            requester.expect([error("57014", message), ready('I')]);
            assert!(server.is_parked());
        } else {
            server.send([allows("yes")]);
            rig.finish_cancel();
            server.expect([
                parse_answer("weir_1", CANCELED),
                bind_id("weir_1", pid),
                execute(),
                sync(),
            ]);
        }
    }
}
