-- One order of one customer. The source knows the day only, so an order counts from that day's midnight (UTC).
CREATE STREAM purchases (
  order_id    TEXT NOT NULL,
  customer_id TEXT NOT NULL,
  ordered_on  DATE NOT NULL,
  units       INT NOT NULL,
  revenue     DECIMAL(10,2) NOT NULL
) WITH (topic = 'purchases', format = 'json', event_time = 'ordered_on', id = 'order_id', dedup_within = '1d', key = 'customer_id');
