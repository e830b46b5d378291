package sinksdk.benchmarks;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import org.apache.avro.Schema;
import org.apache.avro.SchemaBuilder;
import org.apache.avro.file.CodecFactory;
import org.apache.avro.file.DataFileWriter;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.generic.GenericRecord;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.sink.SinkRecord;

/** An Avro container file with the fields of the archiver's own record schema. */
final class AvroFile {
    private static final Schema HEADER = SchemaBuilder.record("Header").namespace("sinksdk").fields()
            .requiredString("key").name("value").type().nullable().bytesType().noDefault().endRecord();
    private static final Schema RECORD = SchemaBuilder.record("Record").namespace("sinksdk").fields()
            .requiredString("topic").requiredInt("partition").requiredLong("offset")
            .name("timestamp").type().nullable().longType().noDefault().requiredInt("timestamp_type")
            .name("key").type().nullable().bytesType().noDefault()
            .name("value").type().nullable().bytesType().noDefault()
            .name("headers").type().array().items(HEADER).noDefault().endRecord();

    private final S3Upload upload;
    private final DataFileWriter<GenericRecord> writer;
    private int records;

    AvroFile(S3Upload upload, String codec) throws IOException {
        this.upload = upload;
        writer = new DataFileWriter<>(new GenericDatumWriter<>(RECORD));
        writer.setCodec(codec.equals("zstandard") ? CodecFactory.zstandardCodec(1) : CodecFactory.fromString(codec));
        writer.create(RECORD, upload);
    }

    void append(SinkRecord record) throws IOException {
        GenericRecord datum = new GenericData.Record(RECORD);
        datum.put(0, record.topic());
        datum.put(1, record.kafkaPartition());
        datum.put(2, record.kafkaOffset());
        datum.put(3, record.timestamp());
        datum.put(4, record.timestampType().id);
        datum.put(5, bytes(record.key()));
        datum.put(6, bytes(record.value()));
        datum.put(7, headers(record));
        writer.append(datum);
        records++;
    }

    int records() {
        return records;
    }

    void complete() throws IOException {
        writer.close();
        upload.complete();
    }

    private static List<GenericRecord> headers(SinkRecord record) {
        List<GenericRecord> found = new ArrayList<>(record.headers().size());
        for (Header header : record.headers()) {
            GenericRecord datum = new GenericData.Record(HEADER);
            datum.put(0, header.key());
            datum.put(1, bytes(header.value()));
            found.add(datum);
        }
        return found;
    }

    private static ByteBuffer bytes(Object value) {
        return value == null ? null : ByteBuffer.wrap((byte[]) value);
    }
}
