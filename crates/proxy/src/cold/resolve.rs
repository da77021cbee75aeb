//! Looks up host names outside the workers, because a lookup may take seconds. Workers get the
//! answers by mail.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use engine::ids::Micros;

use crate::{
    cold::{controller::Controller, dns::names::Asked},
    exchange::{hub::lock, mail::ShellMail, requests::Question},
    log, warning,
};

/// The interval of checks whether `dns_zone_check_period` was set.
const ZONE_LOOK: Duration = Duration::from_secs(1);

/// Answers a worker's question, now or when the answer is known. Call it within the runtime of the
/// cold thread.
pub(crate) fn ask(controller: &Controller, question: Question) {
    if question.is_node {
        drop(tokio::spawn(answer_node(controller.clone(), question)));
        return;
    }
    let control = &controller.0;
    let host = question.host.clone();
    let asked = lock(&control.dns.names).ask(question, control.shared.clock.now());
    match asked {
        Asked::Known(question, addresses) => answer(controller, &question, &addresses),
        Asked::LookUp => drop(tokio::spawn(look_up(controller.clone(), host))),
        Asked::Wait => {}
    }
}

/// Sends the addresses to the worker; none if the name does not exist.
fn answer(controller: &Controller, question: &Question, addresses: &[IpAddr]) {
    let Question { port, worker, ticket, .. } = *question;
    let addresses = addresses.iter().map(|ip| SocketAddr::from((*ip, port))).collect();
    controller.0.shared.hub.mailbox(worker).post(ShellMail::Resolved { ticket, addresses });
}

/// Sends the address of a node that is in use.
async fn answer_node(controller: Controller, question: Question) {
    let found = controller.node_address(&question.host, question.port).await;
    let addresses = match found {
        Ok(address) => vec![address],
        Err(why) => {
            warning!("DNS lookup failed: {}: {why}", question.host);
            Vec::new()
        }
    };
    answer(&controller, &question, &addresses);
}

/// Looks up a name and sends the answer to everything that waits for it. If the name has lost an
/// address, all workers are told.
async fn look_up(controller: Controller, host: String) {
    let control = &controller.0;
    let found = match control.dns.look_up(&host).await {
        Ok(found) => found,
        Err(error) => {
            warning!("DNS lookup failed: {host}: {error}");
            Vec::new()
        }
    };
    let global = &controller.config().global;
    let ttl = if found.is_empty() { global.dns_nxdomain_ttl } else { global.dns_max_ttl };
    let until = control.shared.clock.now() + ttl.as_micros() as Micros;
    let learnt = lock(&control.dns.names).learn(&host, found, until);
    for (question, addresses) in &learnt.answers {
        answer(&controller, question, addresses);
    }
    if !learnt.gone.is_empty() {
        let (host, gone): (Arc<str>, Arc<[IpAddr]>) = (host.into(), learnt.gone.into());
        let moved = || ShellMail::Moved { host: Arc::clone(&host), gone: Arc::clone(&gone) };
        control.shared.tell_all(moved);
    }
}

/// Checks the serial numbers of all zones every `dns_zone_check_period`, forever. When one has
/// grown, its names are looked up again.
pub(crate) async fn watch_zones(controller: Controller) {
    loop {
        let period = controller.config().global.dns_zone_check_period;
        tokio::time::sleep(if period.is_zero() { ZONE_LOOK } else { period }).await;
        if period.is_zero() {
            continue;
        }
        let dns = &controller.0.dns;
        let zones = lock(&dns.names).zones();
        for zone in zones {
            let Some(serial) = dns.serial_of(&zone).await else { continue };
            let grown = lock(&dns.names).grown(&zone, serial);
            if let Some((old, hosts)) = grown {
                log!("zone '{zone}' serial changed: old={old} new={serial}");
                for host in hosts {
                    look_up(controller.clone(), host).await;
                }
            }
        }
    }
}
