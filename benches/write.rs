//! One path through the server so many times and nothing else: `write "apply Pod" 200`, for callgrind. Without a name,
//! all of them, with the CPU time of each.

#![expect(clippy::print_stdout, reason = "it prints figures")]

use benches::measure::middle_nanos;
use benches::requests::Bench;
use benches::server_writes::WRITES;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let wanted = arguments.next();
    let count = arguments.next().and_then(|it| it.parse().ok());
    for (name, write) in WRITES {
        match &wanted {
            None => {
                let mut bench = Bench::new();
                let nanos = middle_nanos(9, 200, |count| write(&mut bench, count));
                println!("{name}\t{nanos:.0}");
            }
            Some(wanted) if wanted == name => {
                write(&mut Bench::new(), count.unwrap_or(100));
            }
            Some(_) => {}
        }
    }
}
