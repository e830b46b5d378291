from sinksdk.sources.kafka.messages import Loop

fill: Loop
