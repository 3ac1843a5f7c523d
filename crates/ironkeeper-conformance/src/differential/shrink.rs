//! Reduces a script with a difference to the steps that are necessary for the difference.

use super::script::{Script, Step};

/// Removes steps, then frames of batches and operations of multis, while `differs` returns true.
pub fn shrink(script: &Script, differs: &mut dyn FnMut(&Script) -> bool) -> Script {
    let mut smallest = script.clone();
    let mut chunk = smallest.steps.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        let mut dropped = false;
        while at < smallest.steps.len() {
            let mut candidate = smallest.clone();
            let end = (at + chunk).min(candidate.steps.len());
            candidate.steps.drain(at..end);
            if differs(&candidate) {
                smallest = candidate;
                dropped = true;
            } else {
                at += chunk;
            }
        }
        if chunk > 1 {
            chunk = chunk.div_ceil(2);
        } else if !dropped {
            break;
        }
    }
    for index in 0..smallest.steps.len() {
        let mut frame = 0;
        loop {
            let mut candidate = smallest.clone();
            let Step::Send { frames, .. } = &mut candidate.steps[index] else { break };
            if frames.len() < 2 || frame >= frames.len() {
                break;
            }
            frames.remove(frame);
            if differs(&candidate) {
                smallest = candidate;
            } else {
                frame += 1;
            }
        }
        shrink_multis(&mut smallest, index, differs);
    }
    smallest
}

fn shrink_multis(smallest: &mut Script, index: usize, differs: &mut dyn FnMut(&Script) -> bool) {
    use super::script::Request;
    let Step::Send { frames, .. } = &smallest.steps[index] else { return };
    for frame in 0..frames.len() {
        let mut operation = 0;
        loop {
            let mut candidate = smallest.clone();
            let Step::Send { frames, .. } = &mut candidate.steps[index] else { return };
            let Request::Multi { operations, .. } = &mut frames[frame].request else { break };
            if operation >= operations.len() {
                break;
            }
            operations.remove(operation);
            if differs(&candidate) {
                *smallest = candidate;
            } else {
                operation += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::script::Zxids;
    use super::*;

    #[test]
    fn only_the_steps_that_matter_are_left() {
        let steps = (0..40).map(|n| Step::Drop { slot: n }).collect();
        let script = Script { root: "/r".to_owned(), steps, zxids: Zxids::Compared };
        let mut differs = |candidate: &Script| {
            [3, 17].iter().all(|slot| candidate.steps.contains(&Step::Drop { slot: *slot }))
        };
        let smallest = shrink(&script, &mut differs);
        assert_eq!(smallest.steps, [Step::Drop { slot: 3 }, Step::Drop { slot: 17 }]);
    }
}
