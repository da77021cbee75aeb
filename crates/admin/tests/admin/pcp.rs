//! PCP as Pgpool-II's tools speak it: requests and answers, byte by byte.

use std::sync::Arc;

use admin::{Control, Pcp, PcpNext, Shutdown};
use config::{PcpCompat, PcpUser, PcpUsers};

use crate::fixture::{MD5, Recorder};

const SALT: [u8; 4] = [1, 0, 3, 4];

/// A session, and the process that it is of.
struct Tool {
    pcp: Pcp,
    process: Arc<Recorder>,
}

fn frame(code: u8, body: &[u8]) -> Vec<u8> {
    let len = (body.len() as u32 + 4).to_be_bytes();
    [&[code], &len[..], body].concat()
}

/// Returns the fields of each message behind its code; the bytes of a number are printed as text.
fn printed(mut out: &[u8]) -> Vec<String> {
    let mut all = Vec::new();
    while let [code, a, b, c, d, rest @ ..] = out {
        let len = u32::from_be_bytes([*a, *b, *c, *d]) as usize - 4;
        let body = rest[..len].escape_ascii().to_string().replace("\\x00", "|");
        all.push(format!("{} {body}", char::from(*code)));
        out = &rest[len..];
    }
    all
}

/// Proves the password for the salt, as the tools do.
fn digest(md5: &str, user: &str, salt: [u8; 4]) -> String {
    let stored = wire::md5::hash(user.as_bytes(), md5.as_bytes());
    wire::md5::response(&stored, salt)["md5".len()..].to_owned()
}

impl Tool {
    fn new(process: Recorder) -> Self {
        let process = Arc::new(process);
        let control: Arc<dyn Control> = process.clone();
        Self { pcp: Pcp::new(control, || SALT), process }
    }

    async fn logged_in(user: &str, process: Recorder) -> Self {
        let mut tool = Self::new(process);
        assert!(tool.log_in(user, &digest(MD5, user, SALT)).await);
        tool
    }

    async fn log_in(&mut self, user: &str, digest: &str) -> bool {
        let (salt, next) = self.ask(b'M', b"").await;
        assert_eq!((salt, next), (vec!["m \\x01|\\x03\\x04".to_owned()], PcpNext::GoOn));
        let asked = self.ask(b'R', format!("{user}\0{digest}\0").as_bytes()).await;
        assert_eq!(asked, (Vec::new(), PcpNext::LogIn));
        let mut out = Vec::new();
        let is_right = self.pcp.log_in(&mut out);
        let wrong = "E SFATAL|CXX000|Mauthentication failed: wrong user name or password||";
        assert_eq!(printed(&out), [if is_right { "r AuthenticationOK|" } else { wrong }]);
        is_right
    }

    async fn ask(&mut self, code: u8, body: &[u8]) -> (Vec<String>, PcpNext) {
        let mut out = Vec::new();
        self.pcp.receive(&frame(code, body));
        let next = self.pcp.answer(&mut out).await;
        (printed(&out), next)
    }

    /// Returns the answer to a request after which the session goes on.
    async fn answer(&mut self, code: u8, body: &[u8]) -> Vec<String> {
        let (answer, next) = self.ask(code, body).await;
        assert_eq!(next, PcpNext::GoOn, "{answer:?}");
        answer
    }

    fn done(&self) -> Vec<String> {
        self.process.done.lock().unwrap().clone()
    }
}

#[tokio::test]
async fn only_the_right_password_logs_in_and_a_salt_is_good_for_one_attempt() {
    let wrong = digest("00000000000000000000000000000000", "pcpadmin", SALT);
    for (user, digest) in
        [("pcpadmin", &*wrong), ("nobody", &*digest(MD5, "nobody", SALT)), ("pcpadmin", "")]
    {
        let mut tool = Tool::new(Recorder::default());
        assert!(!tool.log_in(user, digest).await, "{user}");
        assert!(!tool.pcp.is_logged_in());
        let right = format!("pcpadmin\0{}\0", self::digest(MD5, "pcpadmin", SALT));
        let (answer, next) = tool.ask(b'R', right.as_bytes()).await;
        assert_eq!(answer, ["E SFATAL|CXX000|Mlogin without a salt||"]);
        assert_eq!(next, PcpNext::Close);
        assert!(!tool.pcp.log_in(&mut Vec::new()), "there is no login to try");
    }
}

#[tokio::test]
async fn nobody_logs_in_twice_in_a_connection() {
    let right = format!("pcpadmin\0{}\0", digest(MD5, "pcpadmin", SALT));
    for (code, body) in [(b'M', &b""[..]), (b'R', right.as_bytes())] {
        let mut viewer = Tool::logged_in("viewer", Recorder::default()).await;
        let (answer, next) = viewer.ask(code, body).await;
        assert_eq!(answer, ["E SFATAL|CXX000|Mthis connection is logged in already||"]);
        assert_eq!(next, PcpNext::Close);
        assert!(!viewer.pcp.log_in(&mut Vec::new()));
    }
}

#[tokio::test]
async fn a_session_has_the_rights_of_the_present_users() {
    let user = |md5: &str, is_admin| PcpUser { name: "pcpadmin".into(), md5: md5.into(), is_admin };
    let mut admin = Tool::logged_in("pcpadmin", Recorder::default()).await;
    let set = |tool: &Tool, users| *tool.process.pcp_users.lock().unwrap() = Some(PcpUsers(users));
    set(&admin, vec![user(MD5, false)]);
    assert_eq!(admin.answer(b'L', b"").await, ["l CommandComplete|3|"]);
    let refused = ["E SERROR|CXX000|Mthis user is read-only||"];
    assert_eq!(admin.answer(b'Z', b"l").await, refused);
    set(&admin, vec![user(MD5, true)]);
    assert_eq!(admin.answer(b'Z', b"l").await, ["z CommandComplete|"]);
    for users in [Vec::new(), vec![user("00000000000000000000000000000000", true)]] {
        set(&admin, users);
        let (answer, next) = admin.ask(b'Z', b"l").await;
        let gone = "E SFATAL|CXX000|Mpcp_file has this user with this password no more||";
        assert_eq!((answer, next), (vec![gone.to_owned()], PcpNext::Close));
    }
    assert_eq!(admin.done(), ["reload"]);
}

#[tokio::test]
async fn without_a_login_nothing_is_answered() {
    for (code, body) in
        [(b'L', &b""[..]), (b'I', b"-1\0"), (b'T', b"f"), (b'Z', b"l"), (b'D', b"1\0"), (b'?', b"")]
    {
        let mut tool = Tool::new(Recorder::default());
        let (answer, next) = tool.ask(code, body).await;
        assert_eq!(answer, ["E SFATAL|CXX000|Mconnection not authorized||"]);
        assert_eq!((next, tool.done()), (PcpNext::Close, Vec::new()));
    }
}

#[tokio::test]
async fn nodes_are_told_in_the_layout_of_either_version() {
    let mut tool = Tool::logged_in("viewer", Recorder::default()).await;
    assert_eq!(tool.answer(b'L', b"").await, ["l CommandComplete|3|"]);
    let since = [
        "i ArraySize|3|",
        "i NodeInfo|a.example.org|5432|3|0|down|1073741823.500000|3|unknown|0|0|||9|",
        "i NodeInfo|b.example.org|5432|2|0|up|0.000000|2|primary|0|0|||9|",
        "i NodeInfo|c.example.org|5432|2|0|up|1073741823.500000|3|standby|0|8|streaming|async|9|",
        "i CommandComplete|",
    ];
    assert_eq!(tool.answer(b'I', b"-1\0").await, since);
    let before = Recorder { pcp_compat: PcpCompat::Before, ..Recorder::default() };
    let mut tool = Tool::logged_in("viewer", before).await;
    let one = [
        "i ArraySize|1|",
        "i NodeInfo|c.example.org|5432|2|0|up|1073741823.500000|3|standby|8|streaming|async|9|",
        "i CommandComplete|",
    ];
    assert_eq!(tool.answer(b'I', b"2\0").await, one);
    assert_eq!(tool.answer(b'I', b"3\0").await, ["E SERROR|CXX000|Minvalid node id 3||"]);
}

#[tokio::test]
async fn checks_clients_and_settings_are_told() {
    let mut tool = Tool::logged_in("viewer", Recorder::default()).await;
    assert_eq!(
        tool.answer(b'H', b"1\0").await,
        ["h CommandComplete|1|b.example.org|5432|up|primary|2026-01-02 03:04:14|12|10|2|0|0|\
         0.000000|0|7|1|2.500000|2026-01-02 03:04:09|2026-01-02 03:04:09|||",]
    );
    assert_eq!(tool.answer(b'N', b"").await, ["n CommandComplete|4|16|17|18|21|"]);
    let all = tool.answer(b'P', b"0\0").await;
    assert_eq!((all.len(), &*all[0], &*all[5]), (6, "p ArraySize|4|", "p CommandComplete|"));
    // The linked client: its node is the primary, and its transaction is open.
    assert_eq!(
        tool.answer(b'P', b"17\0").await,
        [
            "p ArraySize|1|",
            "p ProcessInfo|17|2026-01-02 03:04:06|0|0|1|app|alice|2026-01-02 03:04:06|\
         2026-01-02 03:04:06||10|3|0|1|7033|1|Idle in transaction|0|192.0.2.7|40017||",
            "p CommandComplete|",
        ]
    );
    assert_eq!(tool.answer(b'P', b"999\0").await, ["E SERROR|CXX000|Minvalid process ID||"]);
    let settings = tool.answer(b'B', b"").await;
    let count = u32::try_from(settings.len() - 2).unwrap().to_be_bytes();
    assert_eq!(settings[0], format!("b ArraySize|{}", count.escape_ascii()).replace("\\x00", "|"));
    let has = |text: &str| settings.iter().any(|item| item == text);
    assert!(has("b ProcessConfig|listen_port|6432|see weir help listen_port|"), "{settings:?}");
    assert!(has("b ProcessConfig|backend_hostname1|b.example.org|host of node #1|"));
    assert!(has("b ProcessConfig|backend_weight2|0.500000|share of the reads of node #2|"));
    let watchdog = tool.answer(b'W', b"-1\0").await;
    let has = |text: &str| watchdog[0].contains(text);
    assert!(watchdog.len() == 1 && has("w CommandComplete|{"), "{watchdog:?}");
    assert!(
        has(r#"\"AliveNodeCount\":1,"#) && has(r#"\"NodesRequireForQuorum\":2,"#),
        "{watchdog:?}"
    );
    assert!(has(r#"\"QuorumStatus\":-1,"#) && has(r#"\"NodeCount\":2,"#), "{watchdog:?}");
    assert!(has(r#"\"HostName\":\"weir2\","#) && has(r#"\"StateName\":\"LOST\""#), "{watchdog:?}");
    let one = tool.answer(b'W', b"0\0").await;
    assert!(one[0].contains(r#"\"NodeCount\":1,"#) && !one[0].contains("LOST"), "{one:?}");
    let none = ["E SERROR|CXX000|Minvalid watchdog node id 2||"];
    assert_eq!(tool.answer(b'W', b"2\0").await, none);
}

#[tokio::test]
async fn an_admin_changes_things_and_a_read_only_user_does_not() {
    let requests: [(u8, &[u8], &str); 6] = [
        (b'D', b"2\0", "d CommandComplete|"),
        (b'd', b"2\0", "d CommandComplete|"),
        (b'C', b"2\0", "c CommandComplete|"),
        (b'J', b"2 \0s", "d CommandComplete|"),
        (b'J', b"1 \0n", "d CommandComplete|"),
        (b'Z', b"l", "z CommandComplete|"),
    ];
    let mut viewer = Tool::logged_in("viewer", Recorder::default()).await;
    let mut admin = Tool::logged_in("pcpadmin", Recorder::default()).await;
    for (code, body, expected) in requests {
        assert_eq!(admin.answer(code, body).await, [expected]);
        let refused = ["E SERROR|CXX000|Mthis user is read-only||"];
        assert_eq!(viewer.answer(code, body).await, refused);
    }
    let node = "{ cluster: \"main\", node: \"c\" }";
    let orders = ["Detach", "Detach", "Attach", "Promote"].map(|order| format!("{order} {node}"));
    assert_eq!(admin.done()[..4], orders);
    assert_eq!(admin.done()[4..], ["reload"]);
    assert_eq!(viewer.done(), Vec::<String>::new());
    let notes = admin.process.notes.lock().unwrap().clone();
    assert_eq!(notes[0], "DETACH 'main' NODE 'c' command issued by PCP user 'pcpadmin'");
    let (_, next) = viewer.ask(b'T', b"f").await;
    assert_eq!(next, PcpNext::GoOn, "it is refused");
    let (answer, next) = admin.ask(b'T', b"s").await;
    assert_eq!(answer, ["t CommandComplete|"]);
    assert_eq!(next, PcpNext::Shutdown(Shutdown::WaitForClients));
    assert_eq!(admin.ask(b't', b"i").await.1, PcpNext::Shutdown(Shutdown::Now));
}

#[tokio::test]
async fn orders_without_a_sense_are_refused_with_the_reason() {
    let mut admin = Tool::logged_in("pcpadmin", Recorder::default()).await;
    for (code, body, why) in [
        (b'J', &b"2 \0n"[..], "node 2 is not the primary: use --switchover"),
        (b'J', b"1 \0s", "node 1 is the primary already"),
        (b'C', b"7\0", "invalid node id 7"),
        (b'D', b"x\0", "invalid number: x"),
        (b'O', b"1\0", "recovery is not supported"),
        (b'V', b"l", "log rotation is not supported"),
        (b'G', b"", "there is no query cache"),
        (b'A', b"log_min_messages\0debug\0", "only client_min_messages can be set"),
    ] {
        let answer = admin.answer(code, body).await;
        assert!(answer[0].starts_with(&format!("E SERROR|CXX000|M{why}")), "{answer:?}");
    }
    assert_eq!(admin.answer(b'A', b"client_min_messages\0debug\0").await, ["a CommandComplete|"]);
    assert_eq!(admin.done(), Vec::<String>::new());
    assert_eq!(admin.ask(b'X', b"").await, (Vec::new(), PcpNext::Close));
    let kept = Some(vec!["auth_file could not be read".to_owned()]);
    let mut admin =
        Tool::logged_in("pcpadmin", Recorder { not_reloaded: kept, ..Recorder::default() }).await;
    let why = "E SERROR|CXX000|Mreload failed: auth_file could not be read||";
    assert_eq!(admin.answer(b'Z', b"l").await, [why]);
}
