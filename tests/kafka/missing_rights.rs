//! The least rights, as `deploy/README.md` lists them: with exactly these the job is done, and without any one of them it is
//! not, or goes on with a warning, in which operation and resource are named.

use tidegate::clock::Clock;

use super::check::check;
use super::encryption::{create_all_topics, error, refused, with};
use super::outages::read_on;
use crate::support::ledger::{Feed, Feeding, Order, check_complete, config, finish};
use crate::support::process::Tidegate;
use crate::support::rights::{Right, Row, table};
use crate::support::secured::{Listener, Secured, USERS_OF_RIGHTS, names};

#[test]
fn without_any_one_of_the_rights_it_says_which_one_it_lacks() {
    let secured = Secured::shared();
    let cluster = secured.cluster();
    let prefix = "rights";
    create_all_topics(&cluster, prefix);
    let rows: Vec<Row> =
        table(&names(prefix).each()).into_iter().filter(|row| row.command == "run").collect();
    assert!((10..USERS_OF_RIGHTS).contains(&rows.len()), "{rows:?}");
    // One user for each right, who has all the others; and one who has all.
    let users = (0..=rows.len()).map(|user| {
        let rows = rows.iter().enumerate().filter(move |(nth, _)| *nth != user);
        rows.map(move |(_, row)| (format!("User:right{user}"), row.right.clone()))
    });
    secured.grant(&users.flatten().collect::<Vec<_>>());
    let job = |user: usize| {
        let example = secured.example("plain", Listener::Sasl);
        let example = example.replace("\"tidegate\"", &format!("\"right{user}\""));
        with(&config("", prefix), &example)
    };
    let mut feed = Feed::new(Order::Disorder, 12);
    // State to read back, and records of each kind to go on with.
    let mut service = Tidegate::run(&job(rows.len()), &[]);
    cluster.produce(&format!("{prefix}-in"), &feed.take(300));
    read_on(&mut service, 300.0);
    service.stop();
    cluster.produce(&format!("{prefix}-in"), &feed.take(600));

    let numbered = || rows.iter().enumerate();
    for (user, row) in numbered().filter(|(_, row)| !row.optional) {
        let (log, took) = refused(&job(user), &[]);
        let last = error(&log);
        println!("without {:?}: {took:?}: {last}", row.right);
        let named = format!("operation {} on {}", row.right.operation, row.right.resource);
        assert!(last.contains(&named) && last.contains(&row.right.name), "{named} in\n{log}");
    }
    // Looking at the cluster tells the same beforehand, but for what brokers do not tell.
    let all = check(&job(rows.len()), &[]);
    assert_eq!(all.code, Some(0), "{}", all.text);
    all.has_no("fault").has_no("warning");
    for (user, row) in numbered() {
        let Right { operation, resource, name, .. } = &row.right;
        let named = format!("operation {operation} on ");
        let said = check(&job(user), &[]);
        if resource == "transactional id" {
            said.has("not looked at", &[&named, resource, name]);
        } else if row.optional {
            // Old records that cannot be deleted are a note, settings that cannot be seen a warning.
            assert_eq!(said.code, Some(0), "{}", said.text);
            let has = |verdict: &str| {
                said.text.lines().any(|line| {
                    line.starts_with(verdict) && line.contains(operation) && line.contains(name)
                })
            };
            assert!(has("note") || has("warning"), "{:?} in\n{}", row.right, said.text);
        } else {
            assert_eq!(said.code, Some(1), "{}", said.text);
            said.has("fault", &[&named, resource, name]);
        }
    }
    // What can be done without is done without, and told.
    let feeding = Feeding::start(&cluster, &format!("{prefix}-in"), feed);
    for (user, row) in numbered().filter(|(_, row)| row.optional) {
        let clock = Clock::start();
        let mut service = Tidegate::run(&job(user), &[]);
        let named = format!("operation {} on the topic", row.right.operation);
        let line = service.wait_for_line(&named);
        println!("without {:?}: {:?}: {line}", row.right, clock.monotonic().0);
        assert!(line.contains(&row.right.name) && line.contains("WARN"), "{line}");
        service.stop();
    }
    feeding.finish();
    let service = Tidegate::run(&job(rows.len()), &[]);
    let log = finish(&cluster, prefix, service);
    assert!(!log.contains("operation "), "a right is missing:\n{log}");
    check_complete(&cluster, prefix);
}
