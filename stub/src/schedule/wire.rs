//! Encodes records for the notifications `UnspoolSchedule` and `UnspoolProcesses`
//! (docs/reference/protocol.md). The numbers have variable length, because a busy program has a
//! hundred thousand records per second.

use super::record::{CreationStack, Event, Mapping, Place, Record};
use crate::arch::STACK_WORDS;
use crate::thread_events::wire::{change, number};

/// The notification's name, `:NOW;` and the records, without escaping.
pub(super) fn notification(name: &str, records: &[Record], now_ns: u64) -> Vec<u8> {
    let mut body = format!("{name}:{now_ns:x};").into_bytes();
    let mut last_ns = 0;
    for record in records {
        let kind = match &record.event {
            Event::SwitchIn => 0,
            Event::SwitchOut {
                preempted: true, ..
            } => 2,
            Event::SwitchOut { place: None, .. } => 1,
            Event::Fork { .. } => 3,
            Event::Exit => 4,
            Event::Name(_) => 5,
            Event::Waking { .. } => 6,
            Event::Lost { .. } => 7,
            Event::State(_) => 8,
            Event::SwitchOut {
                place: Some(place), ..
            } => match (place.link, stack_mask(place)) {
                (Some(_), _) => 16,
                (None, 0) => 9,
                (None, _) => 10,
            },
            Event::Process { .. } => 11,
            Event::Exec(_) => 12,
            Event::Mapping(mapping) if mapping.build_id.is_empty() => 13,
            Event::Mapping(_) => 15,
            Event::Creation(_) => 14,
        };
        body.push(kind);
        change(record.time_ns, &mut last_ns, &mut body);
        number(record.tid.into(), &mut body);
        number(record.cpu.into(), &mut body);
        match &record.event {
            Event::SwitchOut {
                preempted: false,
                place: Some(place),
            } => {
                number(place.pc, &mut body);
                number(
                    place.number.map_or(0, |number| number.wrapping_add(1)),
                    &mut body,
                );
                place.args.iter().for_each(|arg| number(*arg, &mut body));
                let mask = stack_mask(place);
                if let Some(link) = place.link {
                    number(link, &mut body);
                }
                if mask != 0 || place.link.is_some() {
                    number(mask, &mut body);
                    let known = place.stack.iter().flatten();
                    known.for_each(|word| number(*word, &mut body));
                }
            }
            Event::SwitchIn | Event::SwitchOut { .. } | Event::Exit => {}
            Event::Fork { creator } | Event::Process { creator } => {
                number((*creator).into(), &mut body);
            }
            Event::Name(name) | Event::Exec(name) => {
                counted(name, &mut body);
            }
            Event::Waking { waker } => number(waker.unwrap_or(0).into(), &mut body),
            Event::Lost { count, since_ns } => {
                number(*count, &mut body);
                number(record.time_ns.saturating_sub(*since_ns), &mut body);
            }
            Event::State(letter) => body.push(*letter),
            Event::Mapping(mapping) => {
                let Mapping {
                    address,
                    length,
                    offset,
                    inode,
                    build_id,
                    path,
                } = &**mapping;
                for value in [*address, *length, *offset] {
                    number(value, &mut body);
                }
                match build_id.is_empty() {
                    true => number(*inode, &mut body),
                    false => counted(build_id, &mut body),
                }
                counted(path, &mut body);
            }
            Event::Creation(creation) => {
                let CreationStack {
                    registers,
                    sp,
                    stack,
                } = &**creation;
                counted(registers, &mut body);
                number(*sp, &mut body);
                counted(stack, &mut body);
            }
        }
    }
    body
}

/// Appends the length of some bytes, and these.
fn counted(bytes: &[u8], body: &mut Vec<u8>) {
    number(bytes.len() as u64, body);
    body.extend_from_slice(bytes);
}

/// Bit N: word N of the stack is known.
fn stack_mask(place: &Place) -> u64 {
    const { assert!(STACK_WORDS <= 64) };
    let words = place.stack.iter().enumerate();
    words.fold(0, |mask, (index, word)| {
        mask | u64::from(word.is_some()) << index
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_on_the_wire() {
        let record = |time_ns, tid, event| Record {
            time_ns,
            tid,
            cpu: 1,
            event,
        };
        let place = Place {
            pc: 257,
            number: Some(7),
            args: [3, 0],
            link: None,
            stack: [None; STACK_WORDS],
        };
        let mut with_stack = place;
        with_stack.stack[2] = Some(300);
        with_stack.stack[5] = Some(0);
        with_stack.stack[9] = Some(1);
        let with_link = |place| Place {
            link: Some(300),
            ..place
        };
        let blocked = |place| {
            let (preempted, place) = (false, Some(Box::new(place)));
            record(301, 6, Event::SwitchOut { preempted, place })
        };
        let mapping = Mapping {
            address: 300,
            length: 7,
            offset: 0,
            inode: 9,
            build_id: Vec::new(),
            path: b"/a".to_vec(),
        };
        let mut with_id = mapping.clone();
        (with_id.inode, with_id.build_id) = (0, vec![5, 6]);
        let creation = CreationStack {
            registers: vec![6, 0],
            sp: 300,
            stack: vec![4, 5, 6],
        };
        let records = [
            record(300, 5, Event::SwitchIn),
            record(
                299,
                5,
                Event::SwitchOut {
                    preempted: true,
                    place: Some(Box::new(place)),
                },
            ),
            record(299, 6, Event::Fork { creator: 5 }),
            record(299, 6, Event::Name(b"ab".to_vec())),
            record(301, 6, Event::Waking { waker: None }),
            record(
                301,
                0,
                Event::Lost {
                    count: 9,
                    since_ns: 1,
                },
            ),
            record(301, 6, Event::State(b'S')),
            blocked(place),
            blocked(with_stack),
            blocked(with_link(with_stack)),
            blocked(with_link(place)),
            record(301, 7, Event::Process { creator: 5 }),
            record(301, 7, Event::Exec(b"ab".to_vec())),
            record(301, 7, Event::Mapping(Box::new(mapping))),
            record(301, 8, Event::Creation(Box::new(creation))),
            record(301, 7, Event::Mapping(Box::new(with_id))),
        ];
        let body = notification("UnspoolSchedule", &records, 0x1f);
        let expected = [
            &b"UnspoolSchedule:1f;"[..],
            &[0, 0xd8, 4, 5, 1],
            &[2, 1, 5, 1],
            &[3, 0, 6, 1, 5],
            &[5, 0, 6, 1, 2, b'a', b'b'],
            &[6, 4, 6, 1, 0],
            &[7, 0, 0, 1, 9, 0xac, 2],
            &[8, 0, 6, 1, b'S'],
            &[9, 0, 6, 1, 0x81, 2, 8, 3, 0],
            &[10, 0, 6, 1, 0x81, 2, 8, 3, 0, 0b1010_0100, 4, 0xac, 2, 0, 1],
            &[
                16,
                0,
                6,
                1,
                0x81,
                2,
                8,
                3,
                0,
                0xac,
                2,
                0b1010_0100,
                4,
                0xac,
                2,
                0,
                1,
            ],
            &[16, 0, 6, 1, 0x81, 2, 8, 3, 0, 0xac, 2, 0],
            &[11, 0, 7, 1, 5],
            &[12, 0, 7, 1, 2, b'a', b'b'],
            &[13, 0, 7, 1, 0xac, 2, 7, 0, 9, 2, b'/', b'a'],
            &[14, 0, 8, 1, 2, 6, 0, 0xac, 2, 3, 4, 5, 6],
            &[15, 0, 7, 1, 0xac, 2, 7, 0, 2, 5, 6, 2, b'/', b'a'],
        ];
        assert_eq!(body, expected.concat());
        let mut long = Vec::new();
        number(u64::MAX, &mut long);
        assert_eq!(long.len(), 10);
    }
}
