//! The group, its offsets and its state.

use super::*;

#[test]
fn the_group() {
    let group = |group: Group| move |facts: &mut Facts| facts.group = Ok(group);
    with(group(Group::default()), "ok", &["group `g`: is not there; the service will begin it"]);
    with(group(Group::default()), "not looked at", &["operation Read on the group"]);
    let none = Some([Operation::Describe].into());
    let group_without = Group { state: "Empty", rights: none, ..Group::default() };
    with(group(group_without), "fault", &["the brokers refuse operation Read on group `g`"]);
    with(
        |facts| facts.group = Err(GroupUnseen::Unmanaged),
        "not looked at",
        &["group `g`: no broker manages it"],
    );
    with(
        |facts| facts.group = Err(GroupUnseen::Forbidden),
        "fault",
        &["operation Read on group `g`"],
    );
    with(
        |facts| facts.group = Err(GroupUnseen::Unanswered("timed out".to_owned())),
        "not looked at",
        &["group `g`: timed out"],
    );
    let at_work = |name: &str, assignor: &str| Group {
        members: vec![Member::of(&format!("{name}.0a1b2c3d"), "/10.0.0.1")],
        state: "Stable",
        assignor: assignor.to_owned(),
        newer: false,
        rights: Some([Operation::Read].into()),
    };
    let ours = || at_work("tidegate-host-0", "cooperative-sticky");
    with(
        group(ours()),
        "ok",
        &["Stable with 1 member by the classic protocol: tidegate-host-0 at /10.0.0.1"],
    );
    with(group(ours()), "note", &["kafka.instance_id is `host` and has a member at work"]);
    with(group(at_work("other", "range")), "fault", &["`range`", "offers `cooperative-sticky`"]);
    let by_field = {
        let mut config = config(&[]);
        config.key.from = KeyFrom::Fields(vec!["k".to_owned()]);
        config
    };
    with_config(
        &by_field,
        group(at_work("tidegate-b-0", "cooperative-sticky")),
        "note",
        &["this one would stand by"],
    );
    with(
        |facts| {
            let short = [("group.max.session.timeout.ms", "8000")];
            facts.brokers = [(1, broker_with(&short))].into();
        },
        "fault",
        &["session.timeout.ms is 10 s, and the brokers' group.max.session.timeout.ms is 8000 ms"],
    );
    with(
        |facts| {
            let long = [("group.min.session.timeout.ms", "20000")];
            facts.brokers = [(1, broker_with(&long))].into();
        },
        "fault",
        &["the brokers' group.min.session.timeout.ms is 20000 ms"],
    );
}

#[test]
fn where_the_group_stands() {
    let log = |log: Log| {
        move |facts: &mut Facts| {
            facts.logs = Ok([(PartitionId { topic: 0, partition: 5 }, log)].into());
        }
    };
    let fresh = Log { oldest: 5, end: 9, ..Log::default() };
    with(
        log(fresh),
        "ok",
        &["none yet: the service begins at the oldest record of 1 partition (4 records"],
    );
    let refused = Log { refusal: Some("in/5 ends at offset 9".to_owned()), ..Log::default() };
    with(log(refused), "fault", &["offsets `g`: in/5 ends at offset 9"]);
    let missing = Log { missing: 7, ..Log::default() };
    with(log(missing), "warning", &["in/5: 7 records were deleted before they were read"]);
    with(
        |facts| facts.logs = Err("timed out".to_owned()),
        "not looked at",
        &["offsets `g`: timed out"],
    );
}

#[test]
fn the_state_that_a_start_would_find() {
    let state = |state: State| move |facts: &mut Facts| facts.state = state;
    let unseen = State::Unseen("the changelog cannot be seen".to_owned());
    with(state(unseen), "not looked at", &["state: the changelog cannot be seen"]);
    with(state(State::None), "ok", &["state: there is no changelog yet"]);
    with(
        state(State::Rehearsed(Err("it is damaged".to_owned()))),
        "fault",
        &["state: it is damaged"],
    );
    let unfinished = Rehearsal::Unfinished(Some("timed out".to_owned()));
    with(
        state(State::Rehearsed(Ok(unfinished))),
        "not looked at",
        &["in time: timed out; give it more time by --timeout"],
    );
    let done = |rehearsed| state(State::Rehearsed(Ok(Rehearsal::Done(rehearsed))));
    with(done(Rehearsed::default()), "ok", &["the changelog is empty"]);
    with(
        done(Rehearsed { dropped: 1, ..rehearsed() }),
        "warning",
        &["1 entry that wait for late records", "dropped"],
    );
    with(
        done(Rehearsed { without_offsets: true, ..rehearsed() }),
        "warning",
        &["the group has no offset where the changelog has one"],
    );
}
