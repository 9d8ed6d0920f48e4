//! The kinds of markers, with the fields that the page shows.

use fxprof_processed_profile::{
    CategoryHandle, MarkerFieldFlags, MarkerFieldFormat, MarkerLocations, Profile,
    StaticSchemaMarker, StaticSchemaMarkerField, StringHandle,
};

/// Where all markers are shown: in the chart, in the table, and above the threads.
const LOCATIONS: MarkerLocations = MarkerLocations::MARKER_CHART
    .union(MarkerLocations::MARKER_TABLE)
    .union(MarkerLocations::TIMELINE_OVERVIEW);

/// The fields of a wait, by the names that they have in all formats.
pub(super) const VALUES: [&str; 8] = [
    "kind",
    "operation",
    "waiting_for",
    "address",
    "object_key",
    "in",
    "holder",
    "woken_by",
];

const fn field(key: &'static str, label: &'static str) -> StaticSchemaMarkerField {
    StaticSchemaMarkerField {
        key,
        label,
        format: MarkerFieldFormat::String,
        flags: MarkerFieldFlags::SEARCHABLE,
    }
}

/// A wait for an object.
pub(super) struct Wait {
    pub(super) object: StringHandle,
    pub(super) category: CategoryHandle,
    /// In the order of [`VALUES`]. An unknown one is empty.
    pub(super) values: [StringHandle; VALUES.len()],
}

impl StaticSchemaMarker for Wait {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "Wait";
    const DESCRIPTION: Option<&'static str> = Some("The thread waits for an object.");
    const LOCATIONS: MarkerLocations = LOCATIONS;
    const TABLE_LABEL: Option<&'static str> = Some("{marker.name} in {marker.data.in}");
    const TOOLTIP_LABEL: Option<&'static str> = Some("waits for {marker.name}");
    const FIELDS: &'static [StaticSchemaMarkerField] = &[
        field(VALUES[0], "Kind"),
        field(VALUES[1], "Operation"),
        field(VALUES[2], "Waits for"),
        field(VALUES[3], "Address"),
        field(VALUES[4], "Object's identity"),
        field(VALUES[5], "In"),
        field(VALUES[6], "Holder"),
        field(VALUES[7], "Woken by"),
    ];

    fn name(&self, _: &mut Profile) -> StringHandle {
        self.object
    }

    fn category(&self, _: &mut Profile) -> CategoryHandle {
        self.category
    }

    fn string_field_value(&self, index: u32) -> StringHandle {
        self.values[index as usize]
    }

    fn number_field_value(&self, _: u32) -> f64 {
        0.0
    }
}

/// A creation or a beginning of a thread.
pub(super) struct Life {
    pub(super) name: StringHandle,
    pub(super) thread: StringHandle,
    /// The thread's identity.
    pub(super) key: StringHandle,
}

impl StaticSchemaMarker for Life {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "Life";
    const DESCRIPTION: Option<&'static str> = Some("A thread is created or starts.");
    const LOCATIONS: MarkerLocations = LOCATIONS;
    const CHART_LABEL: Option<&'static str> = Some("{marker.data.thread}");
    const TABLE_LABEL: Option<&'static str> = Some("{marker.name}: {marker.data.thread}");
    const FIELDS: &'static [StaticSchemaMarkerField] =
        &[field("thread", "Thread"), field("identity", "Identity")];

    fn name(&self, _: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _: &mut Profile) -> CategoryHandle {
        CategoryHandle::OTHER
    }

    fn string_field_value(&self, index: u32) -> StringHandle {
        [self.thread, self.key][index as usize]
    }

    fn number_field_value(&self, _: u32) -> f64 {
        0.0
    }
}

/// A finding.
pub(super) struct Noticed {
    pub(super) kind: StringHandle,
    pub(super) text: StringHandle,
    pub(super) proved: StringHandle,
}

impl StaticSchemaMarker for Noticed {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "Finding";
    const DESCRIPTION: Option<&'static str> = Some("A finding of Unspool.");
    const LOCATIONS: MarkerLocations = LOCATIONS;
    const CHART_LABEL: Option<&'static str> = Some("{marker.data.text}");
    const TABLE_LABEL: Option<&'static str> = Some("{marker.name}: {marker.data.text}");
    const FIELDS: &'static [StaticSchemaMarkerField] =
        &[field("text", "Finding"), field("proved", "Proved")];

    fn name(&self, _: &mut Profile) -> StringHandle {
        self.kind
    }

    fn category(&self, _: &mut Profile) -> CategoryHandle {
        CategoryHandle::OTHER
    }

    fn string_field_value(&self, index: u32) -> StringHandle {
        [self.text, self.proved][index as usize]
    }

    fn number_field_value(&self, _: u32) -> f64 {
        0.0
    }
}
