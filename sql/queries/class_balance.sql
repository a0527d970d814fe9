-- How many rows each class has: plain SQL, not a sample query.
SELECT kind, count(*) AS num_rows FROM points GROUP BY kind ORDER BY kind
