//! `deploy/kubernetes`, as `kubectl kustomize` renders it, against the program.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tidegate::config::{Config, KeyFrom};

use crate::documents::{RULES, read};
use crate::image::listen;
use crate::job::{job, least_grace};
use crate::rights::{Names, Right, table};
use crate::tools::{IMAGE, at, kustomized, list, text, yaml};

const BASE: &str = "deploy/kubernetes/base";
const EXAMPLE: &str = "deploy/kubernetes/example";
const STANDBY: &str = "deploy/kubernetes/example-standby";
const POD: &str = "/spec/template/spec";

/// All objects of a kind, by their names.
fn objects(documents: &[Value], kind: &str) -> BTreeMap<String, Value> {
    let of_kind = documents.iter().filter(|document| document["kind"] == kind);
    of_kind.map(|object| (at(object, "/metadata/name").to_owned(), object.clone())).collect()
}

/// The only object of a kind.
fn object(documents: &[Value], kind: &str) -> Value {
    let mut objects = objects(documents, kind);
    assert_eq!(objects.len(), 1, "{kind}");
    objects.pop_first().unwrap().1
}

fn container(stateful_set: &Value) -> &Value {
    let containers = list(stateful_set, "/spec/template/spec/containers");
    assert_eq!(containers.len(), 1);
    &containers[0]
}

/// The job of a rendered folder, as its first pod reads it: from the file that the `ConfigMap` has the text of.
fn config(documents: &[Value]) -> Config {
    let map = object(documents, "ConfigMap");
    let files = [BASE, STANDBY].map(|folder| format!("{folder}/tidegate.toml"));
    let file = files.iter().find(|file| text(file) == at(&map, "/data/tidegate.toml")).unwrap();
    let stateful_set = object(documents, "StatefulSet");
    let variables = list(container(&stateful_set), "/env").iter();
    let variables =
        variables.map(|of| (at(of, "/name").to_owned(), at(of, "/value").to_owned())).collect();
    job(&[file.as_str()], variables, &format!("{}-0", at(&stateful_set, "/metadata/name")))
}

#[test]
fn the_program_takes_the_configuration() {
    for folder in [BASE, EXAMPLE, STANDBY] {
        let documents = kustomized(folder);
        let config = config(&documents);
        assert_eq!(config.kafka.instance_id, "tidegate-0", "a pod's name is the instance's");
        let map = object(&documents, "ConfigMap");
        let stateful_set = object(&documents, "StatefulSet");
        // What the scrape job is named by, and the rules take a job for a group.
        let labels = &stateful_set["spec"]["template"]["metadata"]["labels"];
        assert_eq!(labels["app.kubernetes.io/instance"], config.kafka.group_id.as_str());
        let container = container(&stateful_set);
        let arguments = serde_json::json!(["run", "--config", "/etc/tidegate/tidegate.toml"]);
        assert_eq!(container["args"], arguments);
        let mounted = list(container, "/volumeMounts").iter();
        let mounted: Vec<_> = mounted.filter(|mount| mount["name"] == "config").collect();
        assert_eq!(mounted[0]["mountPath"], "/etc/tidegate");
        let volumes = list(&stateful_set, &format!("{POD}/volumes")).iter();
        let volumes: Vec<_> = volumes.filter(|volume| volume["name"] == "config").collect();
        assert_eq!(volumes[0]["configMap"]["name"], map["metadata"]["name"]);
        // A configuration of another content has another name.
        assert!(at(&map, "/metadata/name").starts_with("tidegate-"));
    }
}

#[test]
fn ports_are_those_that_the_program_listens_at() {
    let documents = kustomized(EXAMPLE);
    let port = Value::from(listen().port());
    assert_eq!(config(&documents).http.listen, listen());
    let stateful_set = object(&documents, "StatefulSet");
    let container = container(&stateful_set);
    assert_eq!(container["ports"], serde_json::json!([{"name": "http", "containerPort": port}]));
    for (probe, path) in [("livenessProbe", "/livez"), ("readinessProbe", "/readyz")] {
        let get = &container[probe]["httpGet"];
        assert_eq!(*get, serde_json::json!({"path": path, "port": "http"}), "{probe}");
    }
    let service = object(&documents, "Service");
    assert_eq!(service["spec"]["clusterIP"], "None");
    assert_eq!(stateful_set["spec"]["serviceName"], service["metadata"]["name"]);
    assert_eq!(list(&service, "/spec/ports")[0]["targetPort"], "http");
    let monitor = object(&documents, "PodMonitor");
    assert_eq!(at(&monitor, "/spec/podMetricsEndpoints/0/port"), "http");
    let policy = object(&documents, "NetworkPolicy");
    assert_eq!(at(&policy, "/spec/ingress/0/ports/0/port"), "http");
}

#[test]
fn brokers_are_where_the_network_policy_lets_it_go() {
    for folder in [BASE, EXAMPLE, STANDBY] {
        let documents = kustomized(folder);
        let config = config(&documents);
        let (_, port) = config.kafka.bootstrap_servers.rsplit_once(':').unwrap();
        let policy = object(&documents, "NetworkPolicy");
        let mut ports = list(&policy, "/spec/egress").iter().flat_map(|rule| list(rule, "/ports"));
        assert!(ports.any(|of| of["port"] == port.parse::<u16>().unwrap()), "{port}");
    }
}

#[test]
fn it_ends_before_it_is_killed_and_is_back_before_its_partitions_move() {
    let documents = kustomized(EXAMPLE);
    let config = config(&documents);
    let stateful_set = object(&documents, "StatefulSet");
    let pod = stateful_set.pointer(POD).unwrap();
    let grace = pod["terminationGracePeriodSeconds"].as_u64().unwrap();
    assert!(least_grace(&config) <= grace, "it is killed after {grace} s");
    assert!(config.kafka.static_membership);
    assert!(config.kafka.session_timeout().as_secs() >= grace, "a slow stop moves partitions");
    assert_eq!(stateful_set["spec"]["updateStrategy"]["type"], "RollingUpdate");
    assert_eq!(config.key.from, KeyFrom::Message, "pods share the partitions");
    let replicas = stateful_set["spec"]["replicas"].as_u64().unwrap();
    let partitions =
        objects(&documents, "KafkaTopic")[&config.sources[0].topic]["spec"]["partitions"]
            .as_u64()
            .unwrap();
    assert!(replicas <= partitions, "{replicas} pods for {partitions} partitions");
}

#[test]
fn a_standby_is_not_waited_for_and_takes_over_at_once() {
    let documents = kustomized(STANDBY);
    let config = config(&documents);
    assert!(config.key.needs_all_partitions(), "pods would share the partitions");
    assert!(!config.kafka.static_membership, "they would be kept for the one that has gone");
    let stateful_set = object(&documents, "StatefulSet");
    assert_eq!(stateful_set["spec"]["replicas"], 2);
    let container = container(&stateful_set);
    assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/livez");
    assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/livez");
}

#[test]
fn the_pod_is_restricted_and_its_image_has_a_version() {
    for folder in [BASE, EXAMPLE, STANDBY] {
        let stateful_set = object(&kustomized(folder), "StatefulSet");
        let pod = stateful_set.pointer(POD).unwrap();
        assert_eq!(pod["automountServiceAccountToken"], false);
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(pod["securityContext"]["runAsUser"], 65532);
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
        let container = container(&stateful_set);
        assert_eq!(at(container, "/image"), IMAGE);
        let context = &container["securityContext"];
        assert_eq!(context["allowPrivilegeEscalation"], false);
        assert_eq!(context["readOnlyRootFilesystem"], true);
        assert_eq!(context["capabilities"]["drop"], serde_json::json!(["ALL"]));
    }
}

#[test]
fn open_windows_take_at_most_half_of_the_memory() {
    let documents = kustomized(BASE);
    let stateful_set = object(&documents, "StatefulSet");
    let limit = at(container(&stateful_set), "/resources/limits/memory").strip_suffix("Mi");
    let limit = limit.unwrap().parse::<usize>().unwrap() << 20;
    let state = config(&documents).limits.bytes.unwrap();
    assert!(2 * state <= limit, "{state} of {limit} bytes");
}

#[test]
fn selectors_find_the_pods() {
    let documents = kustomized(EXAMPLE);
    let stateful_set = object(&documents, "StatefulSet");
    let labels = &stateful_set["spec"]["template"]["metadata"]["labels"];
    let places = [
        ("StatefulSet", "/spec/selector/matchLabels"),
        ("Service", "/spec/selector"),
        ("PodDisruptionBudget", "/spec/selector/matchLabels"),
        ("NetworkPolicy", "/spec/podSelector/matchLabels"),
        ("PodMonitor", "/spec/selector/matchLabels"),
    ];
    for (kind, place) in places {
        let object = object(&documents, kind);
        let selector = object.pointer(place).and_then(Value::as_object).unwrap();
        assert!(!selector.is_empty(), "{kind} selects everything");
        for (name, value) in selector {
            assert_eq!(labels[name], *value, "{kind}: {name}");
        }
    }
    let monitor = object(&documents, "PodMonitor");
    assert_eq!(at(&monitor, "/spec/jobLabel"), "app.kubernetes.io/instance");
}

#[test]
fn the_alerts_of_the_operator_are_those_of_the_rules() {
    let rules = read(RULES);
    let rules = &rules[rules.find("\ngroups:\n").unwrap() + 1..];
    let indented = rules.lines().fold(String::new(), |all, line| {
        let indent = if line.is_empty() { "" } else { "  " };
        all + indent + line + "\n"
    });
    let name = "kubernetes/components/prometheus-operator/prometheusrule.yaml";
    let wrapped = read(name);
    let (_, spec) = wrapped.split_once("\nspec:\n").unwrap();
    assert!(spec == indented, "deploy/{name} differs from deploy/{RULES}; it says how to renew it");
    assert_eq!(
        yaml(&format!("deploy/{name}"))[0]["spec"],
        yaml("deploy/prometheus/tidegate.rules.yml")[0]
    );
}

/// The rights of the job, as the documentation lists them.
fn rights(config: &Config) -> BTreeSet<Right> {
    let names = Names {
        group: &config.kafka.group_id,
        input: &config.sources[0].topic,
        results: &config.results.topic,
        late: &config.late_topic,
        dead: &config.dead_letter_topic,
        export: "",
    };
    let rows = table(&names).into_iter().filter(|row| row.command == "run");
    rows.map(|row| row.right).collect()
}

#[test]
fn strimzi_gives_the_topics_and_the_rights_that_the_job_needs_and_no_more() {
    let documents = kustomized(EXAMPLE);
    let config = config(&documents);
    let wanted = rights(&config);
    let declared: BTreeSet<_> = objects(&documents, "KafkaTopic").into_keys().collect();
    let topics = wanted.iter().filter(|right| right.resource == "topic");
    assert_eq!(declared, topics.map(|right| right.name.clone()).collect());
    assert!(!config.topics.create, "they are there already, and it may not create any");

    let user = object(&documents, "KafkaUser");
    let mut given = BTreeSet::new();
    for acl in list(&user, "/spec/authorization/acls") {
        let resource = match at(acl, "/resource/type") {
            "transactionalId" => "transactional id",
            kind => kind,
        };
        for operation in list(acl, "/operations") {
            let new = given.insert(Right {
                resource: resource.to_owned(),
                name: at(acl, "/resource/name").to_owned(),
                prefix: at(acl, "/resource/patternType") == "prefix",
                operation: operation.as_str().unwrap().to_owned(),
            });
            assert!(new, "{acl} twice");
        }
    }
    assert_eq!(given, wanted);
}

#[test]
fn the_changelog_is_declared_as_the_service_would_create_it() {
    let documents = kustomized(EXAMPLE);
    let config = config(&documents);
    let topics = objects(&documents, "KafkaTopic");
    let input = &topics[&config.sources[0].topic]["spec"];
    let name = format!("{}-{}-changelog", config.kafka.group_id, config.sources[0].topic);
    let changelog = &topics[&name]["spec"];
    assert_eq!(changelog["partitions"], input["partitions"]);
    assert_eq!(changelog["replicas"], input["replicas"]);
    let settings = changelog["config"].as_object().unwrap();
    let source = text("src/kafka/changelog_topic.rs");
    let (_, created) = source.split_once("const SETTINGS").unwrap();
    let (created, _) = created.split_once("];\n").unwrap();
    let created: Vec<_> = created.split('"').skip(1).step_by(2).collect();
    assert!(created.len() >= 14, "{created:?}");
    for pair in created.chunks(2) {
        let found = settings[pair[0]].to_string();
        assert_eq!(found.trim_matches('"'), pair[1], "{}", pair[0]);
    }
}
