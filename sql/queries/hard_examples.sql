-- The two points of each kind that are farthest from the origin.
SELECT image, kind
FROM (
    SELECT image, kind, row_number() OVER (PARTITION BY kind ORDER BY l2_distance(emb, [0, 0]) DESC) AS place
    FROM points
) ranked
WHERE place <= 2
