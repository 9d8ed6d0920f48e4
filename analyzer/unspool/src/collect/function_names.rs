//! Lists of function names in notes.
//!
//! Separate from the parts that write such notes because several of them do.

/// The first `limit` names, and the number of others.
pub(super) fn listed_functions(names: &[&str], limit: usize) -> String {
    let (named, others) = names.split_at(names.len().min(limit));
    let others = match others.len() {
        0 => String::new(),
        1 => " and one other function".to_owned(),
        others => format!(" and {others} other functions"),
    };
    format!("{}{others}", named.join(", "))
}
