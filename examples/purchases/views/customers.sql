-- What each customer bought in the last 7, 30, 90 and 365 days (orders_7d, revenue_30d, ..) and ever.
CREATE VIEW customers WITH (windows = '7d, 30d, 90d, 365d', every = '1h') AS
SELECT customer_id,
       count(*)     AS orders,
       sum(units)   AS units,
       sum(revenue) AS revenue,
       max(revenue) AS largest_order,
       count(*)        FILTER (WHERE within(ordered_on, 'all')) AS orders_ever,
       sum(revenue)    FILTER (WHERE within(ordered_on, 'all')) AS revenue_ever,
       max(ordered_on) FILTER (WHERE within(ordered_on, 'all')) AS last_ordered_on
FROM purchases
GROUP BY customer_id;
