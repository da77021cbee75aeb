//! Metrics and health checks over HTTP.
//!
//! * `page.rs`: the texts, of which at most one a second is made
//!
//! **Invariant:** a scrape costs a worker one letter a second at most, however many there are.

mod page;

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};

use self::page::Pages;
pub use self::page::{Exposition, MetricsPage};
use crate::cold::{
    controller::Controller,
    doors::{self, ACCEPT_PAUSE, Connections, Service},
};

/// The maximum time of a connection from accept to its end.
const CONNECTION_TIME: Duration = Duration::from_secs(10);
/// The maximum time from accept to the end of the request's head.
const HEAD_TIME: Duration = Duration::from_secs(5);
/// The longest head of a request.
const HEAD_MAX: usize = 16 * 1024;
const HEADERS_MAX: usize = 64;

const TEXT: &str = "text/plain; charset=utf-8";
const METRICS_PATHS: &str = "/metrics: metrics for Prometheus (docs/metrics.md)\n";
const HEALTH_PATHS: &str = "/health/live, /healthz: is the process alive?\n\
    /health/ready, /readyz: does it accept clients?\n\
    /health/primary: has each cluster a primary, too?\n\
    /health/primary/NAME: has this cluster a primary, too?\n";

/// The state that all connections share.
struct Server {
    controller: Controller,
    pages: Pages,
}

/// Serves wherever the configuration asks for it, for ever.
pub(crate) async fn keep(controller: Controller, page: MetricsPage) {
    let pages = Pages::new(page);
    let server = Arc::new(Server { controller, pages });
    let keep = |service| {
        let connections = Arc::new(Connections::default());
        let server = &server;
        let accept =
            move |listener| accept(listener, service, Arc::clone(&connections), Arc::clone(server));
        let controller = &server.controller;
        doors::keep(&controller.0.doors, service, || controller.config(), accept)
    };
    tokio::join!(keep(Service::Metrics), keep(Service::Health));
}

/// Each service has connections of its own, so that slow readers of metrics keep no check out.
async fn accept(
    listener: TcpListener,
    service: Service,
    connections: Arc<Connections>,
    server: Arc<Server>,
) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // Without room it is closed by being dropped.
        connections.admit(|has_asked| {
            let server = Arc::clone(&server);
            tokio::spawn(timeout(CONNECTION_TIME, serve(stream, service, server, has_asked)))
                .abort_handle()
        });
    }
}

/// One request and its answer.
async fn serve(
    stream: TcpStream,
    service: Service,
    server: Arc<Server>,
    has_asked: Arc<AtomicBool>,
) {
    let respond = service_fn(|request| {
        has_asked.store(true, Ordering::Relaxed);
        let server = &server;
        async move { Ok::<_, Infallible>(answer(&request, service, server).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_MAX)
        .max_headers(HEADERS_MAX)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), respond);
    // Hyper has answered a request that is not HTTP. A client that has gone needs no answer.
    let _ = served.await;
}

async fn answer(
    request: &Request<Incoming>,
    service: Service,
    server: &Server,
) -> Response<Full<Bytes>> {
    // An answer to HEAD is sent without its body.
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        let mut refusal = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n".to_owned());
        refusal.headers_mut().insert(ALLOW, const { header("GET, HEAD") });
        return refusal;
    }
    let path = request.uri().path();
    if let Some(answer) = health(path, &server.controller) {
        return answer;
    }
    let metrics_paths = if service == Service::Metrics { METRICS_PATHS } else { "" };
    let paths = format!("{metrics_paths}{HEALTH_PATHS}");
    match path {
        "/metrics" if service == Service::Metrics => metrics(request, server).await,
        "/" => text(StatusCode::OK, paths),
        _ => text(StatusCode::NOT_FOUND, format!("no such page; the pages are:\n{paths}")),
    }
}

async fn metrics(request: &Request<Incoming>, server: &Server) -> Response<Full<Bytes>> {
    let accepted = request.headers().get_all(ACCEPT);
    let accepted = accepted.iter().filter_map(|accept| accept.to_str().ok());
    let form = Exposition::accepted(accepted);
    match server.pages.latest(&server.controller, form).await {
        Some(page) => response(StatusCode::OK, form.content_type(), page),
        None => text(StatusCode::SERVICE_UNAVAILABLE, "the pooler has ended\n".to_owned()),
    }
}

/// Returns the answer to a health check, or `None` if the path names no check.
fn health(path: &str, controller: &Controller) -> Option<Response<Full<Bytes>>> {
    let name = match path {
        "/healthz" => "live",
        "/readyz" => "ready",
        _ => path.strip_prefix("/health/")?,
    };
    if name == "live" {
        return Some(text(StatusCode::OK, "ok\n".to_owned()));
    }
    let checks = controller.health(&controller.clusters());
    let Some(check) = checks.into_iter().find(|check| check.name == name) else {
        let cluster = name.strip_prefix("primary/")?;
        let unknown = format!("no cluster \"{cluster}\" is configured\n");
        return Some(text(StatusCode::NOT_FOUND, unknown));
    };
    Some(match check.obstacle {
        None => text(StatusCode::OK, "ok\n".to_owned()),
        Some(why) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    })
}

fn text(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    response(status, TEXT, text.into())
}

fn response(status: StatusCode, kind: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, header(kind));
    response.headers_mut().insert(CACHE_CONTROL, const { header("no-store") });
    response
}

const fn header(value: &'static str) -> hyper::header::HeaderValue {
    hyper::header::HeaderValue::from_static(value)
}
