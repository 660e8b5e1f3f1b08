//! The form that a request asks for, and whether it may be answered.

use std::net::IpAddr;

use crate::openmetrics::ScrapeFormat;

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Negotiated {
    /// The format of the figures.
    pub form: ScrapeFormat,
    /// Whether the answer is compressed.
    pub gzip: bool,
}

/// One media range of a header, with its quality.
struct MediaRange<'a> {
    name: &'a str,
    parameters: Vec<(String, &'a str)>,
    weight: f64,
}

fn media_ranges(header: &str) -> impl Iterator<Item = MediaRange<'_>> {
    header.split(',').map(|range| {
        let mut parts = range.split(';');
        let name = parts.next().unwrap_or("").trim();
        let mut weight = 1.0;
        let mut parameters = Vec::new();
        for (key, value) in parts.filter_map(|part| part.split_once('=')) {
            let (key, value) = (key.trim().to_ascii_lowercase(), value.trim().trim_matches('"'));
            match key.as_str() {
                "q" => weight = value.parse().unwrap_or(0.0),
                _ => parameters.push((key, value)),
            }
        }
        MediaRange { name, parameters, weight }
    })
}

impl MediaRange<'_> {
    fn says(&self, key: &str, values: &[&str]) -> bool {
        let mut said = self.parameters.iter().filter(|(known, _)| known == key);
        said.all(|(_, value)| values.contains(value))
    }

    #[cfg(feature = "native-histograms")]
    fn has(&self, key: &str, value: &str) -> bool {
        self.parameters.iter().any(|(known, said)| known == key && *said == value)
    }

    /// The form for this media range. `None` if this program has no such form.
    fn form(&self) -> Option<ScrapeFormat> {
        match self.name.to_ascii_lowercase().as_str() {
            #[cfg(feature = "native-histograms")]
            "application/vnd.google.protobuf"
                if self.has("proto", "io.prometheus.client.MetricFamily")
                    && self.has("encoding", "delimited") =>
            {
                Some(ScrapeFormat::Protobuf)
            }
            "application/openmetrics-text" if self.says("version", &["1.0.0"]) => {
                Some(ScrapeFormat::OpenMetrics)
            }
            "text/plain" if self.says("version", &["0.0.4"]) => Some(ScrapeFormat::Text),
            "text/*" | "*/*" => Some(ScrapeFormat::Text),
            _ => None,
        }
    }
}

impl Negotiated {
    /// The form that these headers ask for with the greatest quality; among equals, the first.
    /// Requests without a known form get the older text, as usual.
    pub fn of(accept: Option<&str>, accept_encoding: Option<&str>) -> Self {
        let mut best: Option<(f64, ScrapeFormat)> = None;
        for range in media_ranges(accept.unwrap_or("")) {
            let Some(form) = range.form().filter(|_| range.weight > 0.0) else { continue };
            if best.is_none_or(|(weight, _)| range.weight > weight) {
                best = Some((range.weight, form));
            }
        }
        let gzip = media_ranges(accept_encoding.unwrap_or(""))
            .any(|range| range.name.eq_ignore_ascii_case("gzip") && range.weight > 0.0);
        Self { form: best.map_or(ScrapeFormat::Text, |(_, form)| form), gzip }
    }
}

/// Whether a host header names this machine itself. A request from a web page whose host name was
/// made to resolve to this machine (DNS rebinding) has that host name in the header.
pub fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or(""),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    let name = name.trim_end_matches('.');
    name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(accept: &str) -> ScrapeFormat {
        Negotiated::of(Some(accept), None).form
    }

    const PROTOBUF: &str = "application/vnd.google.protobuf;\
                            proto=io.prometheus.client.MetricFamily;encoding=delimited";

    #[test]
    fn scrapers_get_the_form_of_greatest_quality() {
        // The headers of Prometheus 2.42, without and with native histograms, and those of
        // Prometheus 3 by default.
        let older = "application/openmetrics-text;version=1.0.0,\
                     application/openmetrics-text;version=0.0.1;q=0.75,\
                     text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(form(older), ScrapeFormat::OpenMetrics);
        let native = format!("{PROTOBUF},{}", older.replace("1.0.0", "1.0.0;q=0.8"));
        #[cfg(feature = "native-histograms")]
        assert_eq!(form(&native), ScrapeFormat::Protobuf);
        #[cfg(not(feature = "native-histograms"))]
        assert_eq!(form(&native), ScrapeFormat::OpenMetrics);
        let newer = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                     text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
                     text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert_eq!(form(newer), ScrapeFormat::OpenMetrics);
        assert_eq!(form("text/plain;version=0.0.4;q=0.9, */*;q=0.1"), ScrapeFormat::Text);
        // A browser, curl, and a form that does not exist.
        assert_eq!(form("text/html,application/xhtml+xml,*/*;q=0.8"), ScrapeFormat::Text);
        assert_eq!(
            Negotiated::of(None, None),
            Negotiated { form: ScrapeFormat::Text, gzip: false }
        );
        assert_eq!(form("application/json"), ScrapeFormat::Text);
        assert_eq!(form("application/vnd.google.protobuf"), ScrapeFormat::Text);
        assert_eq!(form(&format!("{PROTOBUF};q=0, text/plain;q=0.1")), ScrapeFormat::Text);
        assert_eq!(
            form("APPLICATION/OpenMetrics-Text; Version=\"1.0.0\""),
            ScrapeFormat::OpenMetrics
        );
    }

    #[test]
    fn answers_are_compressed_only_on_request() {
        let gzip = |header| Negotiated::of(None, Some(header)).gzip;
        assert!(gzip("gzip") && gzip("deflate, GZIP;q=0.5"));
        assert!(!gzip("identity") && !gzip("gzip;q=0") && !gzip(""));
    }

    #[test]
    fn only_this_machine_is_local() {
        for host in ["localhost", "LOCALHOST:9464", "127.0.0.1:1", "127.8.9.1", "[::1]:9464"] {
            assert!(is_local(host), "{host}");
        }
        for host in
            ["", "evil.example:9464", "localhost.evil.example", "10.0.0.1", "[::2]", "a:b:c"]
        {
            assert!(!is_local(host), "{host}");
        }
    }
}
