//! The output of `weir check-config`.

use config::{Config, describe};

use crate::ini;

#[test]
fn a_configuration_in_plain_words() {
    let mut config = ini("
[pgbouncer]
listen_addr = 127.0.0.1, ::1
pool_mode = transaction
auth_type = scram-sha-256
auth_file = users.txt
admin_users = root
pkt_buf = 8192
[databases]
app = host=a,/run/pg port=5433 dbname=app_db user=svc pool_size=0
* = host=h
[users]
alice = pool_size=3
[peers]
1 = host=/run/one
2 = host=/run/two port=7000
[pgbouncer]
peer_id = 1
listen_addr = 127.0.0.1, ::1
pool_mode = transaction
auth_file = users.txt
admin_users = root
pkt_buf = 8192
");
    config.auth_file.users.insert("alice".into(), "hush".into());
    let expected = "\
Listens on
  127.0.0.1:6432
  [::1]:6432
  /tmp/.s.PGSQL.6432 (mode 0777)

Pool mode
  transaction

Limits
  100 clients
  20 servers a pool
  200 prepared statements a server
  one worker for every two processors

Who gets in
  by auth_type md5, 1 users in users.txt
  admins of the console: root

Databases
  app -> app_db at a,/run/pg, port 5433, as user svc; transaction mode, any number of servers a pool
  * -> the name asked for at h, port 5432; transaction mode, 20 servers a pool

Users with settings of their own
  alice: pool_size = 3

Peers
  1: this process
  2: /run/two, port 7000
";
    assert_eq!(describe(&config), expected);
}

#[test]
fn the_access_of_a_url() {
    let config = Config::from_url("postgresql://bob:hush@h/").unwrap();
    let text = describe(&config);
    assert!(text.contains("  bob, with the password of the URL\n"), "{text}");
    assert!(!text.contains("hush"));
}
