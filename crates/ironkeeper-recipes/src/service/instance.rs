//! An instance of a service, and its encoding, which is Curator's JSON.

use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::{RecipeError, Result};
use crate::naming::Uuid;
use crate::service::uri_spec::UriSpec;

/// How long an instance stays registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ServiceType {
    /// As long as the session that registered it.
    #[default]
    Dynamic,
    /// Until a client unregisters it.
    Static,
    /// Until a client unregisters it: the same as [`ServiceType::Static`], as in Curator.
    Permanent,
    /// As long as the session; the name of the node gets a sequence number, so that several nodes
    /// may have the same id.
    DynamicSequential,
}

impl ServiceType {
    /// Returns whether the instance is removed at the end of the session.
    pub fn is_dynamic(self) -> bool {
        matches!(self, ServiceType::Dynamic | ServiceType::DynamicSequential)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            ServiceType::Dynamic => "DYNAMIC",
            ServiceType::Static => "STATIC",
            ServiceType::Permanent => "PERMANENT",
            ServiceType::DynamicSequential => "DYNAMIC_SEQUENTIAL",
        }
    }
}

/// An instance of a service. Its JSON is that of Curator's `JsonInstanceSerializer`.
///
/// ```
/// use ironkeeper_recipes::service::ServiceInstance;
///
/// let instance =
///     ServiceInstance::new("web").with_address("10.0.0.1").with_port(8080).with_weight(3);
/// assert_eq!(instance.weight(), 3);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ServiceInstance {
    /// The name of the service.
    pub name: String,
    /// The id of the instance within the service.
    pub id: String,
    /// The host name or IP address.
    #[serde(default)]
    pub address: Option<String>,
    /// The port for plain connections.
    #[serde(default)]
    pub port: Option<u16>,
    /// The port for encrypted connections.
    #[serde(default)]
    pub ssl_port: Option<u16>,
    /// Any other data. Java programs put an `@class` into objects.
    #[serde(default)]
    pub payload: Option<Value>,
    /// The time of the registration, in milliseconds since 1970.
    #[serde(default, rename = "registrationTimeUTC")]
    pub registration_time_utc: i64,
    /// How long it stays registered.
    #[serde(default)]
    pub service_type: ServiceType,
    /// The template of its URI.
    #[serde(default)]
    pub uri_spec: Option<UriSpec>,
    /// Whether clients may use it. Written only if `false`, for readers that do not know the field.
    #[serde(default = "yes", skip_serializing_if = "is_yes")]
    pub enabled: bool,
}

fn yes() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_yes(enabled: &bool) -> bool {
    *enabled
}

impl ServiceInstance {
    /// Creates an instance with a random id, registered now, and no other fields.
    pub fn new(name: impl Into<String>) -> ServiceInstance {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        ServiceInstance {
            name: name.into(),
            id: Uuid::random().to_string(),
            address: None,
            port: None,
            ssl_port: None,
            payload: None,
            registration_time_utc: i64::try_from(now.as_millis()).unwrap_or(i64::MAX),
            service_type: ServiceType::Dynamic,
            uri_spec: None,
            enabled: true,
        }
    }

    /// Sets the id.
    pub fn with_id(mut self, id: impl Into<String>) -> ServiceInstance {
        self.id = id.into();
        self
    }

    /// Sets the address.
    pub fn with_address(mut self, address: impl Into<String>) -> ServiceInstance {
        self.address = Some(address.into());
        self
    }

    /// Sets the port for plain connections.
    pub fn with_port(mut self, port: u16) -> ServiceInstance {
        self.port = Some(port);
        self
    }

    /// Sets the port for encrypted connections.
    pub fn with_ssl_port(mut self, port: u16) -> ServiceInstance {
        self.ssl_port = Some(port);
        self
    }

    /// Sets the payload: any JSON. [`serde_json::json!`] and [`serde_json::to_value`] create it, so
    /// the program needs the crate `serde_json` as a dependency. For a weight alone it does not:
    /// see [`ServiceInstance::with_weight`].
    pub fn with_payload(mut self, payload: Value) -> ServiceInstance {
        self.payload = Some(payload);
        self
    }

    /// Sets the weight for [`WeightedRoundRobin`](super::balance::WeightedRoundRobin) and
    /// [`WeightedRandom`](super::balance::WeightedRandom): the number `weight` in the payload. The
    /// other fields of the payload are kept; a payload that is not a JSON object is replaced. Call
    /// it after [`ServiceInstance::with_payload`].
    pub fn with_weight(mut self, weight: u32) -> ServiceInstance {
        let mut fields = match self.payload.take() {
            Some(Value::Object(fields)) => fields,
            _ => Map::new(),
        };
        fields.insert("weight".to_owned(), weight.into());
        self.payload = Some(Value::Object(fields));
        self
    }

    /// Sets the type. The default is [`ServiceType::Dynamic`].
    pub fn with_type(mut self, service_type: ServiceType) -> ServiceInstance {
        self.service_type = service_type;
        self
    }

    /// Sets the template of the URI.
    pub fn with_uri_spec(mut self, uri_spec: UriSpec) -> ServiceInstance {
        self.uri_spec = Some(uri_spec);
        self
    }

    /// Sets the time of the registration, in milliseconds since 1970. The default is now.
    pub fn registered_at(mut self, utc_ms: i64) -> ServiceInstance {
        self.registration_time_utc = utc_ms;
        self
    }

    /// Marks the instance as disabled: it is registered, but clients must not use it.
    pub fn disabled(mut self) -> ServiceInstance {
        self.enabled = false;
        self
    }

    /// Decodes the payload; a missing payload is decoded as `null`. Returns an error if it is of
    /// another type.
    pub fn payload_as<T: DeserializeOwned>(&self) -> Result<T> {
        let payload = self.payload.clone().unwrap_or_default();
        serde_json::from_value(payload).map_err(|error| RecipeError::Malformed {
            path: format!("{}/{}", self.name, self.id),
            why: format!("the payload is of another type: {error}"),
        })
    }

    /// Returns the URI that its [`UriSpec`] builds, if it has one.
    pub fn uri(&self) -> Option<String> {
        self.uri_spec.as_ref().map(|spec| spec.build(self))
    }

    /// Returns the share of the load relative to other instances: the number `weight` in the
    /// payload, or 1 if there is none. Rules that use weights never choose an instance of weight 0.
    pub fn weight(&self) -> u32 {
        let weight = self.payload.as_ref().and_then(|payload| payload.get("weight"));
        let weight = weight.and_then(Value::as_u64).unwrap_or(1);
        u32::try_from(weight).unwrap_or(u32::MAX)
    }

    /// Returns the id and the time of the registration, which identify one registration.
    pub(crate) fn key(&self) -> (String, i64) {
        (self.id.clone(), self.registration_time_utc)
    }

    pub(crate) fn encode(&self) -> Result<Bytes> {
        match serde_json::to_vec(self) {
            Ok(json) => Ok(json.into()),
            Err(error) => Err(RecipeError::Misuse(format!("{}: {error}", self.id))),
        }
    }

    pub(crate) fn decode(path: &str, data: &[u8]) -> Result<ServiceInstance> {
        serde_json::from_slice(data).map_err(|error| RecipeError::Malformed {
            path: path.to_owned(),
            why: format!("no instance of a service: {error}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_json_is_curators() {
        let spec = UriSpec::parse("{scheme}://{address}").unwrap();
        let instance = ServiceInstance::new("web")
            .with_id("7")
            .with_address("10.0.0.1")
            .with_port(80)
            .with_payload(json!({"@class": "com.example.Load", "cpu": 2}))
            .with_uri_spec(spec)
            .registered_at(1_325_129_459_728);
        let text = concat!(
            r#"{"name":"web","id":"7","address":"10.0.0.1","port":80,"sslPort":null,"#,
            r#""payload":{"@class":"com.example.Load","cpu":2},"#,
            r#""registrationTimeUTC":1325129459728,"serviceType":"DYNAMIC","#,
            r#""uriSpec":{"parts":[{"value":"scheme","variable":true},"#,
            r#"{"value":"://","variable":false},{"value":"address","variable":true}]}}"#,
        );
        assert_eq!(instance.encode().unwrap(), text);
        assert_eq!(ServiceInstance::decode("/x", text.as_bytes()).unwrap(), instance);
    }

    #[test]
    fn what_newer_and_older_writers_say_is_understood() {
        let newer =
            br#"{"name":"n","id":"i","serviceType":"DYNAMIC_SEQUENTIAL","enabled":false,"x":1}"#;
        let instance = ServiceInstance::decode("/x", newer).unwrap();
        assert_eq!(instance.service_type, ServiceType::DynamicSequential);
        assert!(!instance.enabled);
        let again = instance.encode().unwrap();
        assert!(String::from_utf8_lossy(&again).contains(r#""enabled":false"#));
        let older = ServiceInstance::decode("/x", br#"{"name":"n","id":"i"}"#).unwrap();
        assert!(older.enabled && older.service_type.is_dynamic());
    }

    #[test]
    fn what_is_no_instance_is_an_error_with_its_path() {
        for data in [
            &b""[..],
            b"{}",
            b"[1]",
            b"{\"name\":1}",
            b"\xff",
            b"{\"name\":\"n\",\"id\":\"i\",\"port\":99999}",
        ] {
            let error = ServiceInstance::decode("/services/web/x", data).unwrap_err();
            assert!(error.to_string().starts_with("/services/web/x: "), "{error}");
        }
    }

    #[test]
    fn a_payload_is_read_as_a_type() {
        let instance = ServiceInstance::new("web").with_payload(json!({"weight": 5}));
        assert_eq!(instance.weight(), 5);
        let map: std::collections::BTreeMap<String, u32> = instance.payload_as().unwrap();
        assert_eq!(map["weight"], 5);
        assert!(instance.payload_as::<String>().is_err());
        assert_eq!(ServiceInstance::new("web").weight(), 1);
    }

    #[test]
    fn a_weight_is_a_field_of_the_payload() {
        let web = || ServiceInstance::new("web");
        assert_eq!(web().with_weight(5).payload, Some(json!({"weight": 5})));
        let zone = web().with_payload(json!({"zone": "a", "weight": 1})).with_weight(0);
        assert_eq!(zone.payload, Some(json!({"zone": "a", "weight": 0})));
        assert_eq!(zone.weight(), 0);
        assert_eq!(web().with_payload(json!("text")).with_weight(2).weight(), 2);
    }
}
