-- The number of rows of each class. This is plain SQL and not a sample query.
SELECT kind, count(*) AS num_rows FROM points GROUP BY kind ORDER BY kind
