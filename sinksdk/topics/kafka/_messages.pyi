from sinksdk.topics.kafka.messages import Loop

fill: Loop
