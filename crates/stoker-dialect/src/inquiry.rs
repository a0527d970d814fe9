//! How to find out whether a statement took effect whose answer was lost.

use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::change::VERBS;
use crate::{LakeDialect, SQL_BYTES_MAX};

/// What statements create, change or remove, apart from rows.
const OBJECTS: [&str; 5] = ["BRANCH", "INDEX", "TABLE", "TAG", "VIEW"];

/// Words between a verb, its object and a name.
const FILLERS: [&str; 5] = ["OR", "REPLACE", "IF", "NOT", "EXISTS"];

/// A statement that changes a lake, for a message, and a question that shows whether it took effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inquiry {
    /// The kind of statement, such as `CREATE INDEX`.
    pub statement: String,
    /// The question, such as `SHOW INDEXES FROM photos`.
    pub question: String,
}

impl Inquiry {
    /// Reads the first words of a statement. A text that is no statement gets a question that always has an answer.
    ///
    /// ```
    /// use stoker_dialect::Inquiry;
    /// let inquiry = Inquiry::about("create or replace index on photos (label)");
    /// assert_eq!((inquiry.statement.as_str(), inquiry.question.as_str()), ("CREATE INDEX", "SHOW INDEXES FROM photos"));
    /// ```
    pub fn about(sql: &str) -> Self {
        let text = &sql[..sql.floor_char_boundary(SQL_BYTES_MAX)];
        let mut tokens: Vec<TokenWithSpan> = Vec::new();
        // The tokens before an error are enough.
        Tokenizer::new(&LakeDialect, text).tokenize_with_location_into_buf(&mut tokens).ok();
        let tokens = tokens.into_iter().map(|token| token.token).filter(|token| !matches!(token, Token::Whitespace(_)));
        let tokens = of_statement(tokens);
        let verb = tokens.first().and_then(word).unwrap_or_else(|| "a statement".to_string());
        let after = tokens.iter().skip(1).map(word);
        let object = after.map_while(|word| word).find(|word| !FILLERS.contains(&word.as_str()));
        let object = object.filter(|object| OBJECTS.contains(&object.as_str()));
        let table = match (object.as_deref(), verb.as_str()) {
            (Some("BRANCH" | "INDEX" | "TAG"), _) => name_after(&tokens, "ON"),
            (Some(object), _) => name_after(&tokens, object),
            (None, "INSERT" | "MERGE") => name_after(&tokens, "INTO"),
            (None, "DELETE") => name_after(&tokens, "FROM"),
            (None, verb) => name_after(&tokens, verb),
        };
        let question = match (object.as_deref(), verb.as_str(), table) {
            (Some("INDEX"), _, Some(table)) => format!("SHOW INDEXES FROM {table}"),
            (Some("TAG"), _, Some(table)) => format!("SHOW TAGS FROM {table}"),
            (Some("BRANCH"), _, Some(table)) => format!("SHOW BRANCHES FROM {table}"),
            (Some("TABLE"), "ALTER" | "OPTIMIZE" | "RESTORE" | "TRUNCATE", Some(table)) | (None, _, Some(table)) => {
                format!("SHOW VERSIONS FROM {table}")
            }
            _ => "SHOW TABLES".to_string(),
        };
        Self { statement: object.map_or(verb.clone(), |object| format!("{verb} {object}")), question }
    }
}

/// Returns the tokens from the verb of a statement on, without a `WITH` clause before it.
fn of_statement(tokens: impl Iterator<Item = Token>) -> Vec<Token> {
    let mut depth = 0_usize;
    let is_before_verb = |token: &Token| {
        match token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > 0 || word(token).is_none_or(|word| !VERBS.contains(&word.as_str()))
    };
    tokens.skip_while(is_before_verb).collect()
}

/// Returns a word that is not quoted, in upper case.
fn word(token: &Token) -> Option<String> {
    match token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.value.to_uppercase()),
        _ => None,
    }
}

/// Returns the name that stands after the first occurrence of a keyword, as it is written.
fn name_after(tokens: &[Token], keyword: &str) -> Option<String> {
    let mut tokens = tokens.iter().skip_while(|token| word(token).as_deref() != Some(keyword)).skip(1).peekable();
    while tokens.next_if(|token| word(token).is_some_and(|word| FILLERS.contains(&word.as_str()))).is_some() {}
    let mut name = match tokens.next()? {
        Token::Word(part) => part.to_string(),
        _ => return None,
    };
    while tokens.next_if(|token| **token == Token::Period).is_some() {
        let Some(Token::Word(part)) = tokens.next() else { break };
        name.push_str(&format!(".{part}"));
    }
    let following: Vec<&Token> = tokens.take(5).collect();
    if let [at, Token::LParen, what, Token::RArrow, Token::SingleQuotedString(branch)] = following.as_slice()
        && (word(at).as_deref(), word(what).as_deref()) == (Some("AT"), Some("BRANCH"))
    {
        name.push_str(&format!(" AT (BRANCH => '{}')", branch.replace('\'', "''")));
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_show_what_a_statement_changes() {
        for (sql, statement, question) in [
            ("CREATE INDEX a ON t USING btree (x)", "CREATE INDEX", "SHOW INDEXES FROM t"),
            (
                "create index if not exists on Lake.public.\"My t\" (x)",
                "CREATE INDEX",
                "SHOW INDEXES FROM Lake.public.\"My t\"",
            ),
            ("-- why\nDROP INDEX IF EXISTS \"on\" ON t", "DROP INDEX", "SHOW INDEXES FROM t"),
            ("OPTIMIZE INDEX ON t", "OPTIMIZE INDEX", "SHOW INDEXES FROM t"),
            ("OPTIMIZE t", "OPTIMIZE", "SHOW VERSIONS FROM t"),
            ("OPTIMIZE TABLE t", "OPTIMIZE TABLE", "SHOW VERSIONS FROM t"),
            ("CREATE TAG IF NOT EXISTS v1 ON t", "CREATE TAG", "SHOW TAGS FROM t"),
            ("DROP BRANCH IF EXISTS dev ON t", "DROP BRANCH", "SHOW BRANCHES FROM t"),
            ("UPDATE t AT (BRANCH => 'dev') SET a = 1", "UPDATE", "SHOW VERSIONS FROM t AT (BRANCH => 'dev')"),
            ("UPDATE t AT (VERSION => 3) SET a = 1", "UPDATE", "SHOW VERSIONS FROM t"),
            ("CREATE OR REPLACE TABLE t AS SELECT 1", "CREATE TABLE", "SHOW TABLES"),
            ("DROP VIEW IF EXISTS v", "DROP VIEW", "SHOW TABLES"),
            ("ALTER TABLE t ADD COLUMN x INT", "ALTER TABLE", "SHOW VERSIONS FROM t"),
            ("TRUNCATE TABLE t", "TRUNCATE TABLE", "SHOW VERSIONS FROM t"),
            ("RESTORE TABLE t AT (VERSION => 3)", "RESTORE TABLE", "SHOW VERSIONS FROM t"),
            ("RESTORE t AT (TAG => 'v1')", "RESTORE", "SHOW VERSIONS FROM t"),
            ("INSERT INTO t VALUES (1)", "INSERT", "SHOW VERSIONS FROM t"),
            ("WITH a AS (SELECT 1) DELETE FROM t WHERE x IN (SELECT * FROM a)", "DELETE", "SHOW VERSIONS FROM t"),
            ("UPDATE t SET x = 1", "UPDATE", "SHOW VERSIONS FROM t"),
            ("MERGE INTO t USING s ON t.x = s.x WHEN MATCHED THEN DELETE", "MERGE", "SHOW VERSIONS FROM t"),
            ("VACUUM", "VACUUM", "SHOW TABLES"),
            ("", "a statement", "SHOW TABLES"),
            ("CREATE INDEX ON 'never ends", "CREATE INDEX", "SHOW TABLES"),
        ] {
            let expected = Inquiry { statement: statement.into(), question: question.into() };
            assert_eq!(Inquiry::about(sql), expected, "{sql}");
        }
    }
}
