//! One order as JSON, right or broken.

use super::Flaw;
use super::random::Random;
use crate::event_time::EventTime;

/// The shop with this number: a city and a number within it.
pub(super) fn shop_name(shop: u64) -> String {
    let cities = u64::try_from(CITIES.len()).unwrap_or(1);
    let city = usize::try_from(shop % cities).ok().and_then(|city| CITIES.get(city));
    format!("{}-{}", city.unwrap_or(&"berlin"), shop / cities + 1)
}

/// The payload of the order with this number.
pub(super) fn payload(
    random: &mut Random,
    number: u64,
    shop: &str,
    event_time: EventTime,
    flaw: Option<Flaw>,
) -> Vec<u8> {
    let items = 1 + random.below(6).min(random.below(6));
    let amount = items * (199 + random.below(1_800));
    let customer = random.below(100_000);
    let terminal = random.below(40);
    let channel = random.pick(&CHANNELS).unwrap_or(&"app");
    let payment = random.pick(&PAYMENTS).unwrap_or(&"card");

    let timestamp = match flaw {
        Some(Flaw::Seconds) => event_time.0 / 1_000,
        Some(Flaw::FarFuture) => event_time.0.saturating_add(YEAR_MS),
        Some(Flaw::Truncated | Flaw::AmountAsText | Flaw::NoKey) | None => event_time.0,
    };
    let amount = match flaw {
        Some(Flaw::AmountAsText) => format!(r#""{},{:02} EUR""#, amount / 100, amount % 100),
        _ => amount.to_string(),
    };
    let shop = match flaw {
        Some(Flaw::NoKey) => "null".to_owned(),
        _ => format!(r#""{shop}""#),
    };
    let mut json = format!(
        r#"{{"order":"o-{number:06}","shop":{shop},"ts":{timestamp},"amount_cents":{amount},"items":{items},"channel":"{channel}","terminal":"t-{terminal:02}","payment":"{payment}","currency":"EUR","customer":"c-{customer:05}"}}"#
    );
    if flaw == Some(Flaw::Truncated) {
        // All ASCII, so any length is a boundary.
        json.truncate(json.len() / 2);
    }
    json.into_bytes()
}

const YEAR_MS: i64 = 365 * 24 * 3_600_000;

const CHANNELS: [&str; 4] = ["app", "web", "till", "phone"];

const PAYMENTS: [&str; 4] = ["card", "cash", "invoice", "voucher"];

const CITIES: [&str; 12] = [
    "berlin", "hamburg", "munich", "cologne", "leipzig", "bremen", "dresden", "hanover", "essen",
    "bonn", "kiel", "mainz",
];
