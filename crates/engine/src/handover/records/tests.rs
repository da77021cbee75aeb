//! Records that were written are read back unchanged, and other bytes are refused.

use proptest::prelude::*;
use sql::Signs;

use super::*;
use crate::ids::NodeId;
use crate::session::pins::Pins;
use crate::settings::Target;

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..20)
}

fn given(slot: usize) -> Slots {
    let mut given = Slots::default();
    given.add(slot);
    given
}

fn vars() -> impl Strategy<Value = VarsRecord> {
    let tracked = prop::collection::vec(prop::option::of(bytes()), 0..6);
    let pairs = || prop::collection::vec((bytes(), bytes()), 0..3);
    let channels = prop::collection::vec(bytes(), 0..3);
    (tracked, pairs(), pairs(), channels).prop_map(|(tracked, carried, prepared, channels)| {
        VarsRecord { tracked, carried, prepared, channels }
    })
}

fn welcome() -> impl Strategy<Value = WelcomeRecord> {
    let fixed = prop::collection::vec((bytes(), bytes()), 0..3);
    (fixed, vars()).prop_map(|(fixed, vars)| WelcomeRecord { fixed, vars })
}

fn resets(text: &[u8]) -> Resets {
    let mut resets = Resets::default();
    resets.note(&[b"RESET ", text].concat());
    resets
}

fn traces(signs: u32, [named, resets, put_off]: [bool; 3]) -> Traces {
    Traces { signs: Signs::of_bits(signs), named, resets, put_off, ..Traces::default() }
}

fn drawn(text: u32) -> DrawnNumbers {
    let mut drawn = DrawnNumbers::default();
    drawn.add(text);
    drawn
}

fn server() -> impl Strategy<Value = ServerRecord> {
    let numbers = (any::<u32>(), any::<u8>(), any::<u32>(), any::<u32>(), any::<u32>());
    let statements = prop::collection::vec((any::<u64>(), any::<bool>()), 0..4);
    let flags = any::<[bool; 3]>();
    (numbers, bytes(), statements, flags, any::<[u64; 4]>()).prop_map(
        |((pool, status, process_id, welcome, vars), secret, statements, flags, times)| {
            ServerRecord {
                pool,
                mode: if flags[2] { "auto".into() } else { String::new() },
                is_obsolete: flags[0],
                status,
                process_id,
                secret,
                welcome,
                vars,
                pinned: flags[1].then_some(Pinned {
                    pins: Pins::LISTEN,
                    since: times[3],
                    fingerprint: times[2],
                }),
                statements,
                unnamed_is_clients: flags[1],
                numbers_are_clients: flags[0],
                changes_schema: flags[2],
                values_before: flags[0].then_some(process_id),
                lent: if flags[0] { vec![b"mine".to_vec()] } else { Vec::new() },
                traces: traces(process_id, flags),
                may_set: flags[0],
                context_changed: flags[1],
                has_failed: flags[1],
                before: flags[1].then_some(pool),
                followed: flags[2].then_some(welcome),
                resets: resets(&times[0].to_le_bytes()),
                drawn: drawn(pool),
                last_draw: pool,
                state_report: StateReport::at_login(b"v1;t").filter(|_| flags[1]),
                key: flags[1].then(|| Key::new([status; 16])),
                own_keys: flags[2],
                password_number: flags[0].then_some(times[0]),
                shows_client: flags[0],
                uses: times[2],
                connected_at: times[0],
                released_at: times[1],
                asked_at: times[2],
                replied_at: times[3],
            }
        },
    )
}

fn extended() -> impl Strategy<Value = ExtendedRecord> {
    let named = (bytes(), any::<u64>(), any::<u64>(), any::<Option<u64>>())
        .prop_map(|(name, statement, since, shape)| NamedRecord { name, statement, since, shape });
    let names = prop::collection::vec(named, 0..4);
    (names, any::<bool>(), bytes()).prop_map(|(names, has_unnamed, unnamed_parse)| ExtendedRecord {
        names,
        has_unnamed,
        unnamed_parse,
    })
}

fn client() -> impl Strategy<Value = ClientRecord> {
    let flags = any::<[bool; 6]>();
    let replication = (any::<bool>(), prop::option::of(bytes()))
        .prop_map(|(is_logical, options)| ReplicationRecord { is_logical, options });
    let rare =
        (prop::option::of(extended()), prop::option::of(replication), prop::option::of(server()));
    ("[a-zß]{0,9}", ".{0,9}", flags, any::<(u64, u32)>(), bytes(), rare, any::<[u64; 3]>())
        .prop_map(
            |(database, user, flags, (key, vars), held, (extended, replication, server), times)| {
                let [is_counted, welcomed, notified, long_key, tracks, lacks_news] = flags;
                ClientRecord {
                    address: welcomed.then(|| user.clone()),
                    given: given(database.len()),
                    database,
                    user,
                    is_counted,
                    welcomed,
                    notified,
                    key,
                    long_key,
                    vars,
                    held,
                    extended,
                    replication,
                    startup: tracks.then_some(vars),
                    lacks_news,
                    tracks,
                    connected_at: times[0],
                    request_at: times[1],
                    transaction_at: times[2],
                    failed: tracks.then(|| FailedRecord {
                        error: vec![(b'C', b"40001".to_vec())],
                        skips: welcomed,
                        status: b'E',
                    }),
                    server,
                }
            },
        )
}

fn server_secret() -> impl Strategy<Value = ServerSecretRecord> {
    let scram = any::<([u8; 32], [u8; 32])>()
        .prop_map(|(client_key, server_key)| ServerSecretRecord::Scram { client_key, server_key });
    prop_oneof![
        scram,
        ".{0,9}".prop_map(ServerSecretRecord::Md5),
        ".{0,9}".prop_map(ServerSecretRecord::Password),
        Just(ServerSecretRecord::Verifier)
    ]
}

fn pool() -> impl Strategy<Value = PoolRecord> {
    let texts = (".{0,9}", ".{0,9}", ".{0,9}", ".{0,9}", prop::option::of(".{0,9}"));
    (texts, prop::option::of(welcome()), prop::option::of(server_secret()), any::<u16>()).prop_map(
        |((database, user, destination, mode, proven), welcome, server_secret, minor_version)| {
            PoolRecord {
                database,
                user,
                // Either place will do.
                place: match minor_version % 2 {
                    0 => Place::Writer,
                    _ => Place::Reader(NodeId(minor_version)),
                },
                destination,
                mode,
                welcome,
                own_keys: minor_version > 8,
                server_secret,
                proven,
                minor_version,
                may_ask_report: minor_version > 7,
            }
        },
    )
}

fn records() -> impl Strategy<Value = WorkerRecords> {
    let statement = (any::<(u64, u64, u64)>(), bytes(), bytes()).prop_map(
        |((id, schema, context), sql, types)| StatementRecord { id, schema, sql, types, context },
    );
    let statements = prop::collection::vec(statement, 0..4);
    let vars = prop::collection::vec(vars(), 0..4);
    let welcomes = prop::collection::vec(welcome(), 0..3);
    let clients = prop::collection::vec(client(), 0..4);
    let parked = prop::collection::vec(server(), 0..4);
    let attending = (any::<(u64, bool)>(), server())
        .prop_map(|((serial, is_asked), server)| AttendingRecord { serial, is_asked, server });
    let attending = prop::collection::vec(attending, 0..3);
    let names = || prop::collection::vec(bytes(), 0..3);
    let customs = (any::<u32>(), names(), names(), names(), any::<bool>()).prop_map(
        |(pool, known, likely, others, has_dropped)| CustomsRecord {
            pool,
            known,
            likely,
            others,
            has_dropped,
        },
    );
    let customs = prop::collection::vec(customs, 0..3);
    (any::<u64>(), statements, vars, welcomes, clients, (parked, attending), customs).prop_map(
        |(serial, statements, vars, welcomes, clients, (parked, attending), customs)| {
            WorkerRecords {
                serial,
                statements,
                vars,
                welcomes,
                clients,
                parked,
                attending,
                customs,
            }
        },
    )
}

fn lobby() -> impl Strategy<Value = LobbyRecord> {
    let line = any::<(u32, u64, bool)>().prop_map(|(line, server, came)| LineRecord {
        line,
        server,
        came,
        ..LineRecord::default()
    });
    let ending = any::<(u32, bool)>().prop_map(|(cause, at_once)| DismissalRecord {
        cause,
        at_once,
        ..DismissalRecord::default()
    });
    let guest =
        (any::<(u32, u64, Option<(Option<u32>, u64)>)>(), bytes(), prop::option::of(ending));
    let guest = guest.prop_map(|((place, key, refusal), tag, ending)| GuestRecord {
        place,
        key,
        refusal,
        tag,
        ending,
        ..GuestRecord::default()
    });
    let lines = prop::collection::vec(line, 0..3);
    let guests = prop::collection::vec(guest, 0..3);
    (any::<(u32, u32)>(), lines, guests).prop_map(|((pool, base), lines, guests)| LobbyRecord {
        pool,
        base,
        lines,
        guests,
        ..LobbyRecord::default()
    })
}

fn handover_state() -> impl Strategy<Value = HandoverState> {
    let names = prop::collection::vec(".{0,9}", 0..4);
    let pools = prop::collection::vec(prop::option::of(pool()), 0..4);
    let worker_records = prop::collection::vec(records(), 0..3);
    let records = (worker_records, prop::collection::vec(lobby(), 0..3));
    let statements =
        any::<(u64, u64)>().prop_map(|(last_id, schema)| Numbering { last_id, schema });
    let password = (any::<(u64, Micros)>(), ".{0,9}", ".{0,9}").prop_map(
        |((number, remaining), command, password)| PasswordRecord {
            command,
            number,
            password,
            remaining,
        },
    );
    let passwords = prop::collection::vec(password, 0..3);
    let records = (records, passwords);
    let numbers = (any::<u64>(), statements, any::<u64>());
    (numbers, any::<[u8; 32]>(), names.clone(), pools, names, records).prop_map(
        |((now, statements, connections), seed, names, pools, disabled, records)| {
            let ((worker_records, lobbies), passwords) = records;
            HandoverState {
                now,
                seed,
                names,
                statements,
                connections,
                pools,
                disabled,
                primaries: Vec::new(),
                memberships: Vec::new(),
                addresses: Vec::new(),
                clusters: Vec::new(),
                detached: Vec::new(),
                managed_sockets: false,
                deaths: statements.last_id as u32,
                worker_records,
                lobbies,
                passwords,
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_handover_state_is_read_as_it_was_written(handover_state in handover_state()) {
        let bytes = handover_state.to_bytes().unwrap();
        prop_assert_eq!(HandoverState::from_bytes(&bytes).unwrap(), handover_state);
    }

    #[test]
    fn a_part_of_a_handover_state_is_none(handover_state in handover_state(), cut in 1usize..50) {
        let bytes = handover_state.to_bytes().unwrap();
        let part = &bytes[..bytes.len().saturating_sub(cut)];
        prop_assert!(HandoverState::from_bytes(part).is_err());
        prop_assert!(HandoverState::from_bytes(&[&bytes[..], b"x"].concat()).is_err());
    }

    #[test]
    fn any_bytes_are_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = HandoverState::from_bytes(&bytes);
    }
}

fn a_pool(welcome: WelcomeRecord) -> PoolRecord {
    let server_secret = ServerSecretRecord::Scram { client_key: [7; 32], server_key: [8; 32] };
    PoolRecord {
        database: "app".into(),
        user: "alice".into(),
        place: Place::Writer,
        destination: "there".into(),
        mode: "auto".into(),
        welcome: Some(welcome),
        server_secret: Some(server_secret),
        own_keys: true,
        proven: Some("SCRAM-SHA-256$".into()),
        minor_version: 2,
        may_ask_report: true,
    }
}

fn a_primary() -> PrimaryRecord {
    PrimaryRecord {
        cluster: "main".into(),
        primary: Primary { target: Target::Tcp("a".into(), 5432), timeline: 3 },
        outage: Some("lost".into()),
    }
}

fn a_membership() -> MembershipRecord {
    MembershipRecord { cluster: "main".into(), instance: "5eed".into(), until: 9 }
}

fn a_failure() -> FailedRecord {
    FailedRecord { error: vec![(b'S', b"ERROR".to_vec())], skips: true, status: b'E' }
}

fn a_server() -> ServerRecord {
    ServerRecord {
        pool: 1,
        mode: "auto".into(),
        status: b'T',
        secret: b"secret".to_vec(),
        lent: vec![b"mine".to_vec()],
        own_keys: true,
        traces: traces(15, [true, false, true]),
        last_draw: 9,
        values_before: Some(6),
        before: Some(7),
        followed: Some(8),
        state_report: StateReport::at_login(b"v1;w:1.0"),
        pinned: Some(Pinned { pins: Pins::LISTEN, since: 12, fingerprint: 13 }),
        statements: vec![(2, true)],
        connected_at: 3,
        ..ServerRecord::default()
    }
}

fn a_lobby() -> LobbyRecord {
    let line = LineRecord { line: 1, server: 15, came: true, ..LineRecord::default() };
    let guest = GuestRecord {
        place: 2,
        serial: 16,
        database: "app".into(),
        user: "alice".into(),
        key: 17,
        tag: b"tag".to_vec(),
        codes: "weir".into(),
        refusal: Some((Some(1), 18)),
        ending: Some(DismissalRecord { cause: 15, reason: "why".into(), ..Default::default() }),
        ..GuestRecord::default()
    };
    LobbyRecord {
        pool: 1,
        layout: 5,
        base: 4096,
        backends: 4,
        places: 8,
        lines: vec![line],
        guests: vec![guest],
    }
}

/// If this test fails, a record has changed: increase [`FORMAT`] and update the digest here.
/// Otherwise two processes would read the same bytes differently.
#[test]
fn the_format_is_that_of_its_number() {
    let server = a_server();
    let named = NamedRecord { name: b"s".to_vec(), statement: 2, since: 4, shape: Some(5) };
    let client = ClientRecord {
        address: Some("192.0.2.1:5".into()),
        database: "app".into(),
        user: "alice".into(),
        key: 6,
        given: given(3),
        held: b"held".to_vec(),
        extended: Some(ExtendedRecord { names: vec![named], ..ExtendedRecord::default() }),
        replication: Some(ReplicationRecord { is_logical: true, options: Some(b"-c".to_vec()) }),
        failed: Some(a_failure()),
        server: Some(server.clone()),
        ..ClientRecord::default()
    };
    let welcome = WelcomeRecord {
        fixed: vec![(b"server_version".to_vec(), b"15".to_vec())],
        vars: VarsRecord {
            tracked: vec![Some(b"UTF8".to_vec()), None],
            carried: vec![(b"role".to_vec(), b"bob".to_vec())],
            prepared: vec![(b"a".to_vec(), b"PREPARE a AS SELECT 1".to_vec())],
            channels: vec![b"news".to_vec()],
        },
    };
    let pool = a_pool(welcome.clone());
    let records = WorkerRecords {
        serial: 9,
        statements: vec![StatementRecord {
            id: 2,
            schema: 1,
            sql: b"s".to_vec(),
            types: vec![0],
            context: 14,
        }],
        vars: vec![VarsRecord {
            tracked: vec![None, Some(b"UTC".to_vec())],
            ..VarsRecord::default()
        }],
        welcomes: vec![welcome],
        clients: vec![client],
        parked: vec![server.clone()],
        attending: vec![AttendingRecord { serial: 15, is_asked: true, server }],
        customs: vec![CustomsRecord {
            pool: 1,
            known: vec![b"app.x".to_vec()],
            ..CustomsRecord::default()
        }],
    };
    let handover_state = HandoverState {
        now: 10,
        seed: [11; 32],
        names: vec!["TimeZone".into()],
        statements: Numbering { last_id: 2, schema: 1 },
        connections: 12,
        pools: vec![None, Some(pool)],
        disabled: vec!["shut".into()],
        primaries: vec![a_primary()],
        memberships: vec![a_membership()],
        addresses: vec![AddressRecord { host: "h".into(), port: 5432, address: "::1".into() }],
        clusters: vec![(
            "main".into(),
            vec![NodeRecord { name: "a".into(), host: "h".into(), port: 5432, weight: 1 }],
        )],
        detached: vec![("main".into(), "b".into())],
        managed_sockets: true,
        deaths: 3,
        worker_records: vec![records],
        lobbies: vec![a_lobby()],
        passwords: vec![PasswordRecord {
            command: "/bin/token".into(),
            number: 7,
            password: "secret".into(),
            remaining: 8,
        }],
    };
    let bytes = handover_state.to_bytes().unwrap();
    assert_eq!((FORMAT, bytes.len(), digest(&bytes)), (30, 827, 11_515_794_980_807_870_761));
}

/// FNV-1a.
fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}
