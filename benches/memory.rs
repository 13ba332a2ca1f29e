//! Measures the memory of objects and servers, counted in the allocator. Prints lines with a name and a number of
//! bytes.
//!
//! This is a separate program because counting slows down every allocation. With `--bench`, it uses the documented
//! numbers of objects, otherwise a few objects.

#![expect(clippy::print_stdout, reason = "the figures program reads it")]

use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};

use axum::body::Body;
use benches::counting::{Counting, measured};
use benches::measure::scaled;
use benches::objects;
use benches::requests::{first_answer, get, runtime};
use fake_apiserver::ApiServer;
use http_body_util::BodyExt;
use tower::ServiceExt;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn report(name: &str, bytes: usize) {
    println!("{name}\t{bytes}");
}

fn main() {
    let runtime = runtime();
    let (_, peak, ()) = measured(|| runtime.block_on(first_answer()));
    report("first_start", peak);
    let (_, peak, ()) = measured(|| runtime.block_on(first_answer()));
    report("start", peak);

    let _guard = runtime.enter();
    let (_, _, server) = measured(ApiServer::start);
    let text = objects::running_pod("pod-0000000").to_string();
    report("pod_json", text.len());
    let count = scaled(100_000, 1_000);
    let names = (0..count).map(|at| format!("pod-{at:07}"));
    let (held, _, _) = measured(|| {
        server
            .load(names.map(|name| objects::running_pod(&name)))
            .expect("the objects are loaded")
    });
    report("stored_pod", held / count);

    let (_, peak, ()) = measured(|| {
        runtime.block_on(async {
            let request = get("/api/v1/namespaces/default/pods");
            let mut body = server
                .service()
                .oneshot(request)
                .await
                .expect("the service is infallible")
                .into_body();
            while let Some(frame) = body.frame().await {
                drop(frame);
            }
        });
    });
    report("list", peak);

    let (held, _, _fork) = measured(|| (server.snapshot(), server.fork()));
    report("snapshot_and_fork", held);

    let watches = scaled(1_000, 10);
    let watch = |_| {
        runtime
            .block_on(server.service().oneshot(get("/api/v1/configmaps?watch=true")))
            .expect("the service is infallible")
    };
    let (held, _, _watches) = measured(|| (0..watches).map(watch).collect::<Vec<http::Response<Body>>>());
    report("watch", held / watches);
    sockets();
}

/// Measures the memory of a connection to a server: idle, and with a watch.
fn sockets() {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().expect("the runtime can be built");
    let server = runtime.block_on(async { ApiServer::start() });
    let address = (Ipv4Addr::LOCALHOST, 0).into();
    let serving = runtime.block_on(server.serve(address)).expect("a port is free");
    let count = scaled(500, 5);
    // Sockets of the standard library do not use the heap. Each socket is accepted before the next one connects.
    let connect = |_| {
        let stream = TcpStream::connect(serving.addr()).expect("the connect succeeds");
        runtime.block_on(rest());
        stream
    };
    let (held, _, silent) = measured(|| (0..count).map(connect).collect::<Vec<TcpStream>>());
    report("silent_connection", held / count);
    let watch = |mut stream: TcpStream| {
        let request = b"GET /api/v1/configmaps?watch=true HTTP/1.1\r\nhost: localhost\r\n\r\n";
        stream.write_all(request).expect("the write succeeds");
        runtime.block_on(rest());
        stream
    };
    let (more, _, _watching) = measured(|| silent.into_iter().map(watch).collect::<Vec<TcpStream>>());
    report("socket_watch", (held + more) / count);
}

/// Yields until the tasks of a server have completed their work. The runtime polls for I/O every 61 ticks.
async fn rest() {
    for _ in 0..300 {
        tokio::task::yield_now().await;
    }
}
