//! `docker-compose.yml` against the program, the image, and the other files that it names.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::Value;

use crate::image::listen;
use crate::job::{job, least_grace};
use crate::tools::{IMAGE, at, list, package, text, yaml};

fn services() -> serde_json::Map<String, Value> {
    let compose = yaml("docker-compose.yml").remove(0);
    compose["services"].as_object().unwrap().clone()
}

/// The names of those that run the image of this package.
fn ours() -> Vec<String> {
    let mut ours: Vec<_> = services()
        .into_iter()
        .filter(|(_, service)| service["build"]["context"] == ".")
        .map(|(name, _)| name)
        .collect();
    ours.sort();
    assert_eq!(ours, ["exporter", "generator", "tidegate"]);
    ours
}

/// The environment of a service, with what stands for an unset variable.
fn environment(service: &Value) -> BTreeMap<String, String> {
    let variables = service["environment"].as_object().into_iter().flatten();
    let value = |value: &Value| match value.as_str().unwrap().split_once(":-") {
        Some((_, default)) => default.trim_end_matches('}').to_owned(),
        None => value.as_str().unwrap().to_owned(),
    };
    variables.map(|(name, of)| (name.clone(), value(of))).collect()
}

/// The words of a service's command.
fn command(service: &Value) -> Vec<&str> {
    list(service, "/command").iter().map(|word| word.as_str().unwrap()).collect()
}

/// The files of this package behind the `--config` of a command; without one, those of the image's own command.
fn files(service: &Value) -> Vec<String> {
    let mount = at(service, "/volumes/0");
    let folder = mount.strip_suffix(":/etc/tidegate:ro").unwrap().trim_start_matches("./");
    let names = if service.get("command").is_some() {
        let words = command(service);
        let options = words.windows(2).filter(|pair| pair[0] == "--config");
        options.map(|pair| pair[1].to_owned()).collect()
    } else {
        vec!["/etc/tidegate/tidegate.toml".to_owned()]
    };
    names
        .iter()
        .map(|name| format!("{folder}/{}", name.strip_prefix("/etc/tidegate/").unwrap()))
        .collect()
}

#[test]
fn the_program_takes_the_configuration_of_both_services() {
    let services = services();
    for name in ["tidegate", "exporter"] {
        let service = &services[name];
        let files = files(service);
        let files: Vec<_> = files.iter().map(String::as_str).collect();
        let config = job(&files, environment(service), at(service, "/hostname"));
        assert_eq!(config.kafka.instance_id, at(service, "/hostname"));
        assert_eq!(config.kafka.bootstrap_servers, "kafka:9094");
    }
    let image = text("Dockerfile");
    assert!(image.contains(r#"CMD ["run", "--config", "/etc/tidegate/tidegate.toml"]"#));
}

#[test]
fn all_that_is_ours_has_one_name_no_rights_and_the_time_to_end() {
    let services = services();
    let config =
        job(&["deploy/compose/tidegate.toml"], environment(&services["tidegate"]), "tidegate-0");
    for name in ours() {
        let service = &services[&name];
        assert_eq!(at(service, "/image"), IMAGE, "{name}");
        assert_eq!(service["read_only"], true, "{name}");
        let grace = at(service, "/stop_grace_period").trim_end_matches('s').parse().unwrap();
        assert!(least_grace(&config) <= grace, "{name} is killed after {grace} s");
    }
    for (name, service) in &services {
        assert_eq!(service["cap_drop"], serde_json::json!(["ALL"]), "{name}");
        assert_eq!(
            service["security_opt"],
            serde_json::json!(["no-new-privileges:true"]),
            "{name}"
        );
    }
}

#[test]
fn the_topics_are_those_of_the_job() {
    let services = services();
    let config =
        job(&["deploy/compose/tidegate.toml"], environment(&services["tidegate"]), "tidegate-0");
    let script = at(&services["init-topics"], "/command/0");
    let created = script.split_once("for topic in ").unwrap().1.split_once(';').unwrap().0;
    let named = [
        config.sources[0].topic.as_str(),
        &config.results.topic,
        &config.late_topic,
        &config.dead_letter_topic,
    ];
    assert_eq!(created.split(' ').collect::<Vec<_>>(), named);
    let generator = command(&services["generator"]);
    assert!(generator.windows(2).any(|pair| pair == ["--topic", config.sources[0].topic.as_str()]));
}

#[test]
fn ports_are_published_to_this_machine_alone_and_lead_to_who_listens() {
    let services = services();
    let mut published = BTreeMap::new();
    for (name, service) in &services {
        for port in service["ports"].as_array().into_iter().flatten() {
            let mapping = port.as_str().unwrap().strip_prefix("127.0.0.1:");
            let mapping = mapping.unwrap_or_else(|| panic!("{name}: {port} is for everybody"));
            let (outside, inside) = mapping.split_once(':').unwrap();
            assert_eq!(outside, inside, "{name}");
            published.insert(name.as_str(), inside.to_owned());
        }
    }
    assert_eq!(published["tidegate"], listen().port().to_string());
    let prometheus = text("deploy/compose/prometheus.yml");
    assert!(prometheus.contains(&format!("[\"tidegate:{}\"]", listen().port())));
    let exporter = environment(&services["exporter"])["TIDEGATE__EXPORT__POSTGRES__LISTEN"].clone();
    let exporter = exporter.parse::<SocketAddr>().unwrap().port();
    assert!(prometheus.contains(&format!("[\"exporter:{exporter}\"]")));
    let check = services["exporter"]["healthcheck"]["test"].to_string();
    assert!(check.contains(&format!("\"http://127.0.0.1:{exporter}\"")), "{check}");
    let sources = text("deploy/grafana/provisioning/datasources/prometheus.yml");
    assert!(sources.contains(&format!("url: http://prometheus:{}\n", published["prometheus"])));
    assert_eq!(published["kafka"], "9092");
}

#[test]
fn every_service_starts_when_what_it_needs_is_there() {
    let services = services();
    for (name, service) in &services {
        for (needed, how) in service["depends_on"].as_object().into_iter().flatten() {
            let condition = at(how, "/condition");
            let ends = services[needed]["restart"] == "no";
            let wanted = if ends { "service_completed_successfully" } else { "service_healthy" };
            assert_eq!(condition, wanted, "{name} waits for {needed}");
            let is_healthy = services[needed].get("healthcheck").is_some();
            assert!(ends || is_healthy, "{needed} has no health check");
        }
        let is_first = ["kafka", "postgres", "prometheus"].contains(&name.as_str());
        assert_eq!(service.get("depends_on").is_none(), is_first, "{name}");
    }
}

#[test]
fn every_file_that_is_mounted_is_there() {
    let mut seen = 0;
    for (name, service) in services() {
        for volume in service["volumes"].as_array().into_iter().flatten() {
            let volume = volume.as_str().unwrap();
            let Some((file, _)) = volume.strip_prefix("./").and_then(|path| path.split_once(':'))
            else {
                continue;
            };
            seen += 1;
            assert!(package().join(file).exists(), "{name}: {file} is not there");
            assert!(volume.ends_with(":ro"), "{name}: {volume} can be written to");
        }
    }
    assert!(seen >= 6, "where are the files? {seen}");
}

#[test]
fn images_have_a_version_and_kafka_is_that_of_the_tests() {
    let pom = text("tests/kafka-dist/pom.xml");
    for (name, service) in services() {
        let image = at(&service, "/image");
        let (image, version) = image.rsplit_once(':').unwrap_or_else(|| panic!("{name}: {image}"));
        assert!(version.chars().any(|c| c.is_ascii_digit()), "{name}: {version} is no version");
        if image.ends_with("/kafka") {
            assert!(pom.contains(&format!(">{version}</")), "{name}: {version} is not tested");
        }
    }
}

#[test]
fn grafana_finds_its_sources_and_their_passwords() {
    let services = services();
    let folder = "deploy/grafana/provisioning/datasources";
    let mut seen = 0;
    for file in std::fs::read_dir(package().join(folder)).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        for source in list(&yaml(&format!("{folder}/{name}"))[0], "/datasources") {
            seen += 1;
            let address = at(source, "/url").trim_start_matches("http://");
            let (host, _) = address.split_once(':').unwrap();
            assert!(services.contains_key(host), "{name}: there is no service {host}");
            for (secret, value) in source["secureJsonData"].as_object().into_iter().flatten() {
                let variable = value.as_str().unwrap().trim_start_matches('$');
                let environment = &services["grafana"]["environment"];
                assert!(environment.get(variable).is_some(), "{name}: {secret} is not set");
            }
        }
    }
    assert!(seen > 0, "where are the sources?");
}
