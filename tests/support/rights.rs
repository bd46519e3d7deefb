//! The rights that the job and the export need on Kafka, as the table in `deploy/README.md` has them: what people read is
//! what the tests give and take away.

#![allow(clippy::allow_attributes, dead_code, reason = "no target uses all of it")]
#![expect(clippy::unwrap_used, reason = "a test may panic")]

/// One operation on one resource.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Right {
    /// `topic`, `group` or `transactional id`.
    pub(crate) resource: String,
    pub(crate) name: String,
    /// All names that begin like this.
    pub(crate) prefix: bool,
    pub(crate) operation: String,
}

/// A right, and who needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) right: Right,
    /// `run` or `export`.
    pub(crate) command: String,
    /// Without it the command goes on, and a warning names it.
    pub(crate) optional: bool,
}

/// What stands for the names in the table.
pub(crate) struct Names<'a> {
    pub(crate) group: &'a str,
    pub(crate) input: &'a str,
    pub(crate) results: &'a str,
    pub(crate) late: &'a str,
    pub(crate) dead: &'a str,
    pub(crate) export: &'a str,
}

/// The table, with these names.
pub(crate) fn table(names: &Names<'_>) -> Vec<Row> {
    let readme = std::fs::read_to_string(README).unwrap();
    let (_, table) = readme.split_once(HEAD).unwrap();
    let rows = table.lines().skip(1).take_while(|line| line.starts_with("| `"));
    let mut all = Vec::new();
    for line in rows {
        let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [command, resource, name, needed, optional] = cells[..] else {
            panic!("not five cells: {line}")
        };
        let name = [
            ("<kafka.group_id>", names.group),
            ("<source.topic>", names.input),
            ("<results.topic>", names.results),
            ("<late.topic>", names.late),
            ("<dead_letter.topic>", names.dead),
            ("<export.postgres.group_id>", names.export),
        ]
        .iter()
        .fold(name.trim_matches('`').to_owned(), |text, (of, is)| text.replace(of, is));
        assert!(!name.contains('<'), "an unknown name in {line}");
        let prefix = name.ends_with('*');
        let name = name.trim_end_matches('*').to_owned();
        for (operations, optional) in [(needed, false), (optional, true)] {
            for operation in operations.split(", ").filter(|operation| *operation != "-") {
                let right = Right {
                    resource: resource.to_owned(),
                    name: name.clone(),
                    prefix,
                    operation: operation.to_owned(),
                };
                let command = command.trim_matches('`').to_owned();
                all.push(Row { right, command, optional });
            }
        }
    }
    assert!(all.len() > 10, "{all:?}");
    all
}

const README: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/README.md");

const HEAD: &str = "| for | resource | name | needed | better with |\n";
