import java.util.Map;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.catalog.Catalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.server.Server;
import org.eclipse.jetty.servlet.ServletContextHandler;
import org.eclipse.jetty.servlet.ServletHolder;

/** Serves a JDBC catalog through the REST protocol: IcebergCatalog PORT JDBC-URI WAREHOUSE. */
public final class IcebergCatalog {
    public static void main(String[] args) throws Exception {
        Catalog catalog = CatalogUtil.buildIcebergCatalog(
                "rest",
                Map.of(
                        "catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog",
                        "uri", args[1],
                        "warehouse", args[2],
                        "jdbc.schema-version", "V1",
                        "clients", "1",
                        "io-impl", "org.apache.iceberg.hadoop.HadoopFileIO"),
                new org.apache.hadoop.conf.Configuration());
        ServletContextHandler context = new ServletContextHandler();
        context.setContextPath("/");
        context.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
        Server server = new Server(new java.net.InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])));
        server.setHandler(context);
        server.start();
        server.join();
    }
}
