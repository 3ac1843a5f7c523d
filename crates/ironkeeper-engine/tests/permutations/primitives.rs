//! The gate and the combining lock by themselves.

use std::sync::Arc;

use ironkeeper_engine::baton::Baton;
use ironkeeper_engine::gate::Gate;
use shuttle::thread;

use crate::check;

#[test]
fn no_reader_sees_a_write_half_done_and_everybody_gets_in() {
    check(|| {
        let (gate, mut token) = Gate::new((0, 0));
        let gate = Arc::new(gate);
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let gate = Arc::clone(&gate);
                thread::spawn(move || {
                    let mut before = 0;
                    for _ in 0..3 {
                        let (one, other) = *gate.read();
                        assert_eq!(one, other);
                        assert!(one >= before);
                        before = one;
                        thread::yield_now();
                    }
                })
            })
            .collect();
        for _ in 0..3 {
            let mut state = gate.write(&mut token);
            state.0 += 1;
            thread::yield_now();
            state.1 += 1;
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
        assert_eq!(*gate.read(), (3, 3));
    });
}

/// An item of work: the thread that enqueued it, and its number within that thread.
type Work = (u8, u8);

#[derive(Default)]
struct Owner {
    fetched: Vec<Work>,
    done: Vec<Work>,
}

fn work(baton: &Baton<Owner, Work>) {
    baton.run(|owner| {
        loop {
            baton.fetch(&mut owner.fetched);
            if owner.fetched.is_empty() {
                return;
            }
            owner.done.append(&mut owner.fetched);
        }
    });
}

#[test]
fn everything_left_at_the_baton_is_done_once_in_order_with_nobody_left_to_do_it() {
    check(|| {
        let baton = Arc::new(Baton::new(Owner::default()));
        let mut bringers: Vec<_> = (0..3)
            .map(|who| {
                let baton = Arc::clone(&baton);
                thread::spawn(move || {
                    for what in 0..3 {
                        baton.enqueue([(who, what)]);
                        work(&baton);
                    }
                })
            })
            .collect();
        let looking = Arc::clone(&baton);
        bringers.push(thread::spawn(move || {
            looking.hold(|owner| owner.done.len());
            work(&looking);
        }));
        bringers.into_iter().for_each(|bringer| bringer.join().unwrap());
        baton.hold(|owner| {
            for who in 0..3 {
                let own = owner.done.iter().filter(|work| work.0 == who).map(|work| work.1);
                assert_eq!(own.collect::<Vec<u8>>(), [0, 1, 2], "{:?}", owner.done);
            }
        });
    });
}
